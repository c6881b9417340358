#include "fuse/session/image_user.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "core/base/errors.h"

namespace varve::fuse {
namespace {

struct PasswdEntry {
  std::string_view name;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::string_view home;
};

struct GroupEntry {
  std::string_view name;
  std::uint32_t gid = 0;
  std::string_view members;  // separated by commas
};

std::optional<std::uint32_t> parse_id(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || value > kMaxUserId)
    return std::nullopt;
  return value;
}

// True for "4294967296" too, which is a number though no id.
bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Calls `use` with the fields of each line that has at least `N` of them.
template <std::size_t N, typename Use>
void for_each_line(std::string_view text, Use use) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find('\0') != line.npos) continue;  // would be cut short by every C program that sees it later
    std::array<std::string_view, N> fields;
    std::size_t count = 0;
    for (; count < N; ++count) {
      const auto colon = line.find(':');
      fields[count] = line.substr(0, colon);
      if (colon == line.npos) {
        ++count;
        break;
      }
      line.remove_prefix(colon + 1);
    }
    if (count == N) use(fields);
  }
}

// The first entry that `matches`, as getpwnam(3) would find it.
template <typename Matches>
std::optional<PasswdEntry> find_passwd(std::string_view passwd, Matches matches) {
  std::optional<PasswdEntry> found;
  for_each_line<6>(passwd, [&](const auto& fields) {
    const auto uid = parse_id(fields[2]);
    const auto gid = parse_id(fields[3]);
    if (found || fields[0].empty() || !uid || !gid) return;
    const PasswdEntry entry{.name = fields[0], .uid = *uid, .gid = *gid, .home = fields[5]};
    if (matches(entry)) found = entry;
  });
  return found;
}

template <typename Use>
void for_each_group(std::string_view group, Use use) {
  for_each_line<4>(group, [&](const auto& fields) {
    const auto gid = parse_id(fields[2]);
    if (!fields[0].empty() && gid) use(GroupEntry{.name = fields[0], .gid = *gid, .members = fields[3]});
  });
}

bool lists(std::string_view members, std::string_view name) {
  while (!members.empty()) {
    const auto end = std::min(members.find(','), members.size());
    if (members.substr(0, end) == name) return true;
    members.remove_prefix(std::min(end + 1, members.size()));
  }
  return false;
}

std::uint32_t find_group(std::string_view group, std::string_view wanted) {
  std::optional<std::uint32_t> found;
  for_each_group(group, [&](const GroupEntry& entry) {
    if (!found && entry.name == wanted) found = entry.gid;
  });
  if (found) return *found;
  if (const auto number = parse_id(wanted)) return *number;
  if (is_number(wanted)) fail<UsageError>("the group number {} is larger than {}", wanted, kMaxUserId);
  fail<NotFound>("the image's etc/group has no group '{}'", wanted);
}

std::vector<std::uint32_t> groups_of(std::string_view group, std::string_view name) {
  std::vector<std::uint32_t> groups;
  for_each_group(group, [&](const GroupEntry& entry) {
    if (groups.size() < kMaxSupplementaryGroups && lists(entry.members, name) &&
        std::find(groups.begin(), groups.end(), entry.gid) == groups.end())
      groups.push_back(entry.gid);
  });
  return groups;
}

ImageUser find_user(std::string_view passwd, std::string_view wanted) {
  auto entry = find_passwd(passwd, [&](const PasswdEntry& one) { return one.name == wanted; });
  const auto number = parse_id(wanted);
  if (!entry && number) entry = find_passwd(passwd, [&](const PasswdEntry& one) { return one.uid == *number; });
  if (!entry && !number) {
    if (is_number(wanted)) fail<UsageError>("the user number {} is larger than {}", wanted, kMaxUserId);
    fail<NotFound>("the image's etc/passwd has no user '{}'", wanted);
  }
  ImageUser user;
  user.uid = entry ? entry->uid : *number;
  user.gid = entry ? entry->gid : 0;
  user.name = entry ? entry->name : "";
  user.home = entry && entry->home.starts_with('/') ? std::string(entry->home) : user.uid == 0 ? "/root" : "/";
  return user;
}

std::string text_of(const Rootfs& rootfs, std::string_view path) {
  const auto bytes = rootfs.read_file(path, kMaxAccountFileBytes);
  return bytes ? std::string(as_text(*bytes)) : std::string();
}

}  // namespace

ImageUser find_image_user(std::string_view passwd, std::string_view group, std::string_view spec) {
  const auto colon = spec.find(':');
  const auto wanted_user = spec.substr(0, colon);
  const auto wanted_group = colon == spec.npos ? std::string_view() : spec.substr(colon + 1);
  auto user = find_user(passwd, wanted_user.empty() ? "0" : wanted_user);
  if (!wanted_group.empty()) {
    user.gid = find_group(group, wanted_group);
  } else if (!user.name.empty()) {
    user.groups = groups_of(group, user.name);
  }
  return user;
}

ImageUser find_image_user(const Rootfs& rootfs, std::string_view spec) {
  return find_image_user(text_of(rootfs, "/etc/passwd"), text_of(rootfs, "/etc/group"), spec);
}

}  // namespace varve::fuse
