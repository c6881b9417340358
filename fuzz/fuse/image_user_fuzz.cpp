// The image's etc/passwd and etc/group, the user spec of its config, and a subuid file: three texts separated by NUL
// bytes.
#include <cstdint>
#include <string_view>

#include "core/base/errors.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/image_user.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto take = [&] {
    const auto end = std::min(input.find('\0'), input.size());
    const auto part = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
    return part;
  };
  const auto spec = take();
  const auto group = take();
  for (const auto& range : varve::fuse::parse_subid(group, "eve", 1000))
    if (std::uint64_t(range.inside) + range.count > UINT32_MAX ||
        std::uint64_t(range.outside) + range.count > UINT32_MAX)
      __builtin_trap();
  try {
    const auto user = varve::fuse::find_image_user(input, group, spec);
    if (user.home.empty() || user.uid > varve::fuse::kMaxUserId || user.gid > varve::fuse::kMaxUserId) __builtin_trap();
    if (user.groups.size() > varve::fuse::kMaxSupplementaryGroups) __builtin_trap();
  } catch (const varve::Error&) {
  }
  return 0;
}
