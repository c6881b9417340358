// What probes read that the image's programs wrote: answers, a kernel's reply, lists of extensions.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/prune/apply/import_session.h"
#include "analyzer/prune/probe/probe_image.h"

using namespace varve;

namespace {

void try_answers(std::string_view text) {
  try {
    if (prune::parse_program_answers(text, 2).size() != 2) std::abort();
  } catch (const Error&) {
  }
}

void try_spied_imports(std::string_view text) {
  static const std::vector<prune::ImportTask> tasks{{.names = {"json"}, .archived = false, .spy = true}};
  try {
    const auto outcome = prune::parse_import_outcomes(text, tasks).at(0).at(0);
    for (const auto* names : {&outcome.loaded, &outcome.tried, &outcome.files})
      if (names->size() > prune::kMaxMissedNames) std::abort();
  } catch (const Error&) {
  }
}

void try_reply(std::string_view text) {
  if (prune::read_kernel_reply({.outcome = "exit 0", .out = std::string(text), .err = "", .files = {}}).outcome.size() >
      100)
    std::abort();
}

void try_listing(std::string_view text) {
  const auto names = prune::enabled_extensions(text, [](const std::string&) { return true; });
  if (names.size() > prune::kMaxListed) std::abort();
  for (const auto& name : names)
    if (name.empty() || name.size() > 200) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      try_answers(text);
      break;
    case 1:
      try_spied_imports(text);
      break;
    case 2:
      try_reply(text);
      break;
    default:
      try_listing(text);
  }
  return 0;
}
