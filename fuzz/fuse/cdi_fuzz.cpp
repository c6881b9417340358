// A device specification, as JSON and as YAML: read or refused, and never a path that is not absolute.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/errors.h"
#include "fuse/session/cdi.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool yaml : {false, true}) {
    try {
      const auto document = varve::fuse::parse_cdi(text, yaml, "spec");
      for (const auto& mount : document.common.mounts)
        if (!mount.container_path.starts_with('/') || !mount.host_path.starts_with('/')) std::abort();
    } catch (const varve::Error&) {
    }
  }
  return 0;
}
