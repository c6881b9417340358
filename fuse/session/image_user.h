#pragma once
// Who a session's command runs as: the `User` of the image config, looked up in the image's own etc/passwd and
// etc/group (passwd(5), group(5)). The files are foreign: lines that do not parse are skipped, nothing outside the root
// folder is read.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuse/session/rootfs.h"

namespace varve::fuse {

inline constexpr std::uint64_t kMaxAccountFileBytes = 8 << 20;
inline constexpr std::size_t kMaxSupplementaryGroups = 1024;
inline constexpr std::uint32_t kMaxUserId = (1u << 31) - 1;  // as runtimes accept them

struct ImageUser {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::vector<std::uint32_t> groups;  // supplementary, in the order of etc/group
  std::string name;                   // "" if the number has no entry
  std::string home;                   // never empty
  bool operator==(const ImageUser&) const = default;
};

// `spec` is "[user][:group]", each a name or a number; "" is root. A number needs no entry; its group is then 0, as
// container runtimes do. With a group named, there are no supplementary ones. Throws NotFound for a name that the files
// lack, UsageError for a number too large.
ImageUser find_image_user(std::string_view passwd, std::string_view group, std::string_view spec);
// The same with the files of a root folder; files that are not there are empty.
ImageUser find_image_user(const Rootfs& rootfs, std::string_view spec);

}  // namespace varve::fuse
