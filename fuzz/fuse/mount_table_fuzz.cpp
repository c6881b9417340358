// mountinfo: names in it are those of any user who mounts.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuse/mount/mount_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::fuse;
  const auto table = parse_mount_table(std::string_view(reinterpret_cast<const char*>(data), size));
  for (const auto& entry : table) {
    if (entry.dir.string().size() > size || entry.source.size() > size) std::abort();
    const auto* top = topmost_at(table, entry.dir);
    if (top == nullptr || top->dir != entry.dir || !is_mounted_at(table, entry.dir, entry)) std::abort();
  }
  for (const auto& overlay : parse_overlays(std::string_view(reinterpret_cast<const char*>(data), size)))
    if (overlay.dir.string().size() > size || overlay.lower.size() > size) std::abort();
  return 0;
}
