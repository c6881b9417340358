#include "core/base/process/boot_id.h"

#include "core/base/files/file.h"
#include "core/base/text/strings.h"

namespace varve {

std::string boot_id() {
  const auto bytes = read_file_if_there("/proc/sys/kernel/random/boot_id", 4096);
  return bytes ? std::string(trimmed(as_text(*bytes))) : std::string();
}

}  // namespace varve
