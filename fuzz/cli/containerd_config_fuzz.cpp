// containerd's configuration as anybody wrote it, merged for each version: refused, or it has all that was wanted, says
// so once more, and a second time nothing is changed.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cli/containerd/containerd_config.h"
#include "core/base/errors.h"

namespace {

using namespace varve;

void try_version(std::string_view text) {
  try {
    const auto version = cli::parse_containerd_version(text);
    if (cli::parse_containerd_version(version.to_string()) != version) std::abort();
  } catch (const Error&) {
  }
}

void try_merge(std::string_view text, std::string_view version) {
  const cli::ContainerdSettings settings{.version = cli::parse_containerd_version(version),
                                         .socket = "/run/varve/snapshotter.sock",
                                         .root = "/var/lib/varve"};
  std::string merged;
  try {
    merged = cli::merge_settings(text, "config.toml", settings);
  } catch (const Error&) {
    return;
  }
  if (!cli::missing_settings(parse_toml(merged, "config.toml"), "config.toml", settings).empty()) std::abort();
  if (cli::merge_settings(merged, "config.toml", settings) != merged) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_version(text.substr(0, 200));
  for (const char* version : {"1.6.20", "1.7.24", "2.1.9"}) try_merge(text, version);
  return 0;
}
