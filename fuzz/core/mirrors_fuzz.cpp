// hosts.toml and registries.conf: whatever they hold is refused with file and line, or gives sources that can be asked.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/errors.h"
#include "core/oci/internal/hosts_toml.h"
#include "core/oci/internal/registries_conf.h"

namespace {

using namespace varve;
using namespace varve::oci;

void check(const internal::Source& source) {
  if (source.host.empty() || source.connect_to.empty()) std::abort();
  if (!source.root.starts_with('/') && !source.root.empty()) std::abort();
  for (const auto& header : source.headers)
    if (header.find_first_of("\r\n") != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto file = internal::parse_hosts_toml(text, "input.toml", "/folder");
    for (const auto& mirror : file.mirrors) check(mirror);
    if (file.server) check(*file.server);
  } catch (const CorruptData& error) {
    if (!std::string(error.what()).starts_with("input.toml:")) std::abort();
  }
  try {
    const auto tables = internal::parse_registries_conf(text, "input.toml");
    for (const auto* name : {"reg.example:5000/team/app:v1", "busybox", "sub.reg.example/a"}) {
      const auto reference = Reference::parse(name);
      const auto* table = internal::find_registry(tables, reference);
      if (table == nullptr) continue;
      for (const auto& mirror : table->mirrors)
        if (const auto source = internal::source_at(mirror.location, table->prefix, reference)) check(*source);
      internal::source_at(table->own.location, table->prefix, reference);
    }
  } catch (const CorruptData& error) {
    if (!std::string(error.what()).starts_with("input.toml:")) std::abort();
  }
  return 0;
}
