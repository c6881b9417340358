#include "fuse/mount/user_ids.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

#include "core/base/errors.h"
#include "core/base/process/subid.h"

namespace varve::fuse {
namespace {

constexpr const char* kSubuid = "/etc/subuid";
constexpr const char* kSubgid = "/etc/subgid";

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
  each_subid(text, [&](const SubidRange& range) {
    if (range.owner != user && range.owner != id_text) return true;
    if (next_inside + range.count > std::numeric_limits<std::uint32_t>::max()) return true;
    ranges.push_back({.inside = std::uint32_t(next_inside), .outside = range.first, .count = range.count});
    next_inside += range.count;
    return ranges.size() < kMaxSubidRanges;
  });
  return ranges;
}

IdPool IdPool::of_this_machine(const IdRange& otherwise) {
  return of_text(read_subids(kSubuid), read_subids(kSubgid), otherwise);
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
  const auto first = parse_id(text.substr(0, colon));
  const auto count = colon == text.npos ? std::nullopt : parse_id(text.substr(colon + 1));
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
    uids = parse_subid(read_subids(kSubuid), user, uid);
    gids = parse_subid(read_subids(kSubgid), user, uid);
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
