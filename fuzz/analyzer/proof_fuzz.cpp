// What gates read that others wrote: proofs, answers of the import program, tables of archived modules. What is taken
// is written as it was read.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/prune/apply/archive.h"
#include "analyzer/prune/apply/import_session.h"
#include "analyzer/prune/apply/proof.h"

using namespace varve;

namespace {

void try_proof(std::string_view text) {
  try {
    const auto proof = prune::parse_proof(text, "proof");
    const auto again = prune::to_json(proof);
    if (prune::to_json(prune::parse_proof(again, "proof")) != again) std::abort();
  } catch (const Error&) {
  }
}

void try_outcomes(std::string_view text) {
  static const std::vector<prune::ImportTask> tasks{{.names = {"json", "nope"}}, {.names = {"soup"}, .archived = true}};
  try {
    const auto outcomes = prune::parse_import_outcomes(text, tasks);
    if (outcomes.size() != 2 || outcomes[0].size() != 2 || outcomes[1].front().name != "soup") std::abort();
  } catch (const Error&) {
  }
}

void try_table(std::string_view text) {
  const auto written = prune::archived_table(prune::parse_archived_table(text));
  if (prune::archived_table(prune::parse_archived_table(written)) != written) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      try_proof(text);
      break;
    case 1:
      try_outcomes(text);
      break;
    default:
      try_table(text);
  }
  return 0;
}
