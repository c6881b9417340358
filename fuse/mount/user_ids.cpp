#include "fuse/mount/user_ids.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>

#include "core/base/errors.h"
#include "core/base/file.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMaxSubidFileBytes = 4 << 20;

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::vector<IdRange> ranges_in_file(const char* path, std::string_view user, std::uint32_t id) {
  const auto bytes = read_file_if_there(path, kMaxSubidFileBytes);
  return bytes ? parse_subid(as_text(*bytes), user, id) : std::vector<IdRange>{};
}

std::string name_of_user(uid_t uid) {
  const auto* entry = ::getpwuid(uid);
  return entry == nullptr ? "" : entry->pw_name;
}

// The `number`-th whole block of the ranges.
std::optional<std::uint32_t> block_of(const std::vector<IdRange>& ranges, std::uint64_t number) {
  for (const auto& range : ranges) {
    const std::uint64_t blocks = range.count / kOwnIds;
    if (number < blocks) return std::uint32_t(range.outside + number * kOwnIds);
    number -= blocks;
  }
  return std::nullopt;
}

bool overlap(std::uint32_t one, std::uint32_t other) {
  return one < other ? other - one < kOwnIds : one - other < kOwnIds;
}

std::string text_of_file(const char* path) {
  const auto bytes = read_file_if_there(path, kMaxSubidFileBytes);
  return bytes ? std::string(as_text(*bytes)) : std::string();
}

IdMap own_id_first(std::uint32_t own, std::vector<IdRange> others) {
  others.insert(others.begin(), IdRange{.inside = 0, .outside = own, .count = 1});
  return IdMap(std::move(others), own);
}

}  // namespace

bool IdMap::maps(std::uint32_t inside) const {
  if (identity_) return true;
  for (const auto& range : ranges_)
    if (inside >= range.inside && inside - range.inside < range.count) return true;
  return false;
}

std::uint32_t IdMap::outside(std::uint32_t inside) const {
  if (identity_) return inside;
  for (const auto& range : ranges_)
    if (inside >= range.inside && inside - range.inside < range.count) return range.outside + (inside - range.inside);
  return fallback_;
}

std::string IdMap::to_map_file() const {
  if (identity_) return "0 0 4294967295\n";
  std::string text;
  for (const auto& range : ranges_) text += fmt::format("{} {} {}\n", range.inside, range.outside, range.count);
  return text;
}

std::vector<IdRange> parse_subid(std::string_view text, std::string_view user, std::uint32_t id) {
  std::vector<IdRange> ranges;
  std::uint64_t next_inside = 1;
  const auto id_text = std::to_string(id);
  while (!text.empty() && ranges.size() < kMaxSubidRanges) {
    const auto line_end = std::min(text.find('\n'), text.size());
    const auto line = text.substr(0, line_end);
    text.remove_prefix(std::min(line_end + 1, text.size()));
    const auto first_colon = line.find(':');
    const auto second_colon = line.find(':', first_colon == line.npos ? first_colon : first_colon + 1);
    if (second_colon == line.npos) continue;
    const auto owner = line.substr(0, first_colon);
    if ((user.empty() || owner != user) && owner != id_text) continue;
    const auto first = parse_number(line.substr(first_colon + 1, second_colon - first_colon - 1));
    const auto count = parse_number(line.substr(second_colon + 1));
    if (!first || !count || *count == 0 || *first == 0) continue;
    constexpr std::uint64_t kIds = std::numeric_limits<std::uint32_t>::max();  // the last one means "no id"
    if (std::uint64_t(*first) + *count > kIds || next_inside + *count > kIds) continue;
    ranges.push_back({.inside = std::uint32_t(next_inside), .outside = *first, .count = *count});
    next_inside += *count;
  }
  return ranges;
}

IdPool IdPool::of_this_machine(const IdRange& otherwise) {
  return of_text(text_of_file("/etc/subuid"), text_of_file("/etc/subgid"), otherwise);
}

IdPool IdPool::of_text(std::string_view subuid, std::string_view subgid, const IdRange& otherwise) {
  constexpr std::uint32_t kNoNumber = std::numeric_limits<std::uint32_t>::max();  // these are looked for by name
  for (const auto* user : {"varve", "containers", "root"}) {
    IdPool pool{.uids = parse_subid(subuid, user, kNoNumber), .gids = parse_subid(subgid, user, kNoNumber)};
    if (block_of(pool.uids, 0) && block_of(pool.gids, 0)) return pool;
  }
  return {.uids = {otherwise}, .gids = {otherwise}};
}

std::optional<OwnIds> IdPool::find_free(const std::vector<OwnIds>& taken) const {
  for (std::uint64_t number = 0;; ++number) {
    const auto uid = block_of(uids, number);
    const auto gid = block_of(gids, number);
    if (!uid || !gid) return std::nullopt;
    const auto in_the_way = [&](const OwnIds& other) {
      return overlap(*uid, other.first_uid) || overlap(*gid, other.first_gid);
    };
    if (std::none_of(taken.begin(), taken.end(), in_the_way)) return OwnIds{.first_uid = *uid, .first_gid = *gid};
  }
}

IdRange parse_id_range(std::string_view text) {
  const auto colon = text.find(':');
  const auto first = parse_number(text.substr(0, colon));
  const auto count = colon == text.npos ? std::nullopt : parse_number(text.substr(colon + 1));
  if (!first || !count || *first == 0 || *count < kOwnIds ||
      std::uint64_t(*first) + *count > std::numeric_limits<std::uint32_t>::max())
    fail<UsageError>(
        "the range of ids '{}' is not of the form FIRST:COUNT, with {} ids at least and none above 2^32 - 2", text,
        kOwnIds);
  return {.inside = 0, .outside = *first, .count = *count};
}

UserIds UserIds::of_own(const OwnIds& own) {
  UserIds ids;
  ids.is_root = false;
  ids.made_by_root = true;
  ids.uids = IdMap({{.inside = 0, .outside = own.first_uid, .count = kOwnIds}}, own.first_uid);
  ids.gids = IdMap({{.inside = 0, .outside = own.first_gid, .count = kOwnIds}}, own.first_gid);
  return ids;
}

UserIds UserIds::of_this_process() {
  const auto uid = ::geteuid();
  const auto gid = ::getegid();
  if (uid == 0) return {};
  UserIds ids;
  ids.is_root = false;
  std::vector<IdRange> uids;
  std::vector<IdRange> gids;
  if (!find_program("newuidmap").empty() && !find_program("newgidmap").empty()) {
    const auto user = name_of_user(uid);
    uids = ranges_in_file("/etc/subuid", user, uid);
    gids = ranges_in_file("/etc/subgid", user, uid);
  }
  if (uids.empty() || gids.empty()) {  // half a map would make chown fail in odd ways
    uids.clear();
    gids.clear();
  }
  ids.needs_helpers = !uids.empty();
  ids.uids = own_id_first(uid, std::move(uids));
  ids.gids = own_id_first(gid, std::move(gids));
  return ids;
}

std::filesystem::path find_program(std::string_view name) {
  const char* path = std::getenv("PATH");
  const std::string folders =
      fmt::format("{}:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", path == nullptr ? "" : path);
  for (std::size_t at = 0; at < folders.size();) {
    const auto end = std::min(folders.find(':', at), folders.size());
    const std::filesystem::path candidate = std::filesystem::path(folders.substr(at, end - at)) / name;
    at = end + 1;
    if (candidate.is_absolute() && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

}  // namespace varve::fuse
