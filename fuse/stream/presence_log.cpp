#include "fuse/stream/presence_log.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::fuse {
namespace {

constexpr std::string_view kMagic = "VARVEPRS";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 136;
constexpr std::size_t kHeaderDigestOffset = kHeaderBytes - Digest::kBytes;
constexpr std::uint32_t kGroupMagic = 0x50524756;  // "VGRP"
constexpr std::size_t kGroupHeaderBytes = 16;
constexpr std::size_t kRunBytes = 8;
constexpr std::size_t kCheckBytes = 8;
constexpr std::size_t kMaxRunsPerGroup = 65'536;
constexpr std::uint64_t kMaxLogBytes = 1ull << 30;
// A log of more groups than this is written anew when it is opened.
constexpr std::uint64_t kCompactAboveGroups = 512;

enum class GroupKind : std::uint32_t { kPresent = 1, kGone = 2 };

Bytes encode_header(const PresenceIdentity& identity) {
  Bytes header;
  append(header, as_bytes(kMagic));
  append_le<std::uint32_t>(header, kVersion);
  append_le<std::uint32_t>(header, std::uint32_t(identity.kind));
  append(header, identity.object.raw());
  append(header, identity.cut.raw());
  append_le<std::uint64_t>(header, identity.units);
  append_le<std::uint64_t>(header, identity.data_bytes);
  append_le<std::uint64_t>(header, 0);  // reserved
  append(header, digest_of(header).raw());
  return header;
}

// Covers the place as well, so that an old group left behind by a truncation is not taken for a new one.
Bytes check_of(const Digest& salt, std::uint64_t at, ByteView group) {
  Bytes place;
  append_le<std::uint64_t>(place, at);
  Sha256 hash;
  hash.update(salt.raw());
  hash.update(place);
  hash.update(group);
  return to_bytes(hash.finish().raw().first(kCheckBytes));
}

}  // namespace

std::vector<UnitRun> runs_of(std::vector<std::uint32_t> units) {
  std::sort(units.begin(), units.end());
  std::vector<UnitRun> runs;
  for (const auto unit : units) {
    if (!runs.empty() && unit - runs.back().first < runs.back().count) continue;  // named twice
    if (!runs.empty() && unit - runs.back().first == runs.back().count)
      ++runs.back().count;
    else
      runs.push_back({.first = unit, .count = 1});
  }
  return runs;
}

PresenceLog::PresenceLog(std::filesystem::path path, const PresenceIdentity& identity)
    : path_(std::move(path)), identity_(identity), salt_(digest_of(encode_header(identity))) {}

PresenceLog::Opened PresenceLog::open(const std::filesystem::path& path, const PresenceIdentity& identity) {
  Opened opened;
  opened.log.reset(new PresenceLog(path, identity));
  opened.present.assign(identity.units, false);
  opened.found = opened.log->load(opened.present, opened.reason);
  if (opened.found != Found::kSame) opened.log->begin({});
  return opened;
}

PresenceLog::Found PresenceLog::load(std::vector<bool>& present, std::string& reason) {
  const auto content = read_file_if_there(path_, kMaxLogBytes);
  if (!content) return Found::kNothing;
  const auto unusable = [&](std::string why) {
    reason = std::move(why);
    return Found::kUnusable;
  };
  if (content->size() < kHeaderBytes) return unusable(fmt::format("its header ends after {} bytes", content->size()));
  const ByteView view(*content);
  if (as_text(view.first(kMagic.size())) != kMagic) return unusable("it is no presence log");
  if (const auto version = load_le<std::uint32_t>(view.data() + 8); version != kVersion)
    return unusable(fmt::format("it has version {}, not {}", version, kVersion));
  if (digest_of(view.first(kHeaderDigestOffset)) != Digest::from_raw(view.subspan(kHeaderDigestOffset, Digest::kBytes)))
    return unusable("its header is damaged");
  if (load_le<std::uint32_t>(view.data() + 12) != std::uint32_t(identity_.kind) ||
      Digest::from_raw(view.subspan(16, Digest::kBytes)) != identity_.object)
    return unusable("it belongs to another object");
  if (const auto bytes = load_le<std::uint64_t>(view.data() + 88); bytes != identity_.data_bytes)
    return unusable(fmt::format("it describes {} bytes of data, not {}", bytes, identity_.data_bytes));
  if (Digest::from_raw(view.subspan(48, Digest::kBytes)) != identity_.cut ||
      load_le<std::uint64_t>(view.data() + 80) != identity_.units)
    return Found::kOtherCut;

  end_ = replay(*content, present, reason);
  fd_ = open_file(path_, O_RDWR);
  if (end_ < content->size() && ::ftruncate(fd_.get(), off_t(end_)) != 0) fail_errno("truncate {}", path_.string());
  if (groups_ > kCompactAboveGroups) {
    std::vector<std::uint32_t> units;
    for (std::size_t unit = 0; unit < present.size(); ++unit)
      if (present[unit]) units.push_back(std::uint32_t(unit));
    begin(runs_of(std::move(units)));
  }
  return Found::kSame;
}

// Applies all groups up to the first that does not check; returns where that one begins.
std::uint64_t PresenceLog::replay(const Bytes& content, std::vector<bool>& present, std::string& reason) {
  std::uint64_t at = kHeaderBytes;
  const auto torn = [&] {
    reason = fmt::format("{} bytes at {} are torn and dropped", content.size() - at, at);
    return at;
  };
  while (at < content.size()) {
    const auto left = content.size() - at;
    const auto* group = content.data() + at;
    if (left < kGroupHeaderBytes || load_le<std::uint32_t>(group) != kGroupMagic) return torn();
    const std::size_t runs = load_le<std::uint32_t>(group + 4);
    const auto kind = load_le<std::uint32_t>(group + 8);
    const auto body_bytes = kGroupHeaderBytes + runs * kRunBytes;
    if (runs > kMaxRunsPerGroup || left < body_bytes + kCheckBytes) return torn();
    const auto check = check_of(salt_, at, ByteView(group, body_bytes));
    if (!std::equal(check.begin(), check.end(), group + body_bytes)) return torn();
    for (std::size_t run = 0; run < runs; ++run) {
      const std::uint64_t first = load_le<std::uint32_t>(group + kGroupHeaderBytes + run * kRunBytes);
      const std::uint64_t count = load_le<std::uint32_t>(group + kGroupHeaderBytes + run * kRunBytes + 4);
      if (first > present.size() || count > present.size() - first) return torn();
      std::fill_n(present.begin() + std::ptrdiff_t(first), count, kind == std::uint32_t(GroupKind::kPresent));
    }
    at += body_bytes + kCheckBytes;
    ++groups_;
  }
  return at;
}

// Nothing is synced here: an empty log that a crash loses is begun again, and the first append() syncs the header with
// it. A log with content replaces the old one by rename.
void PresenceLog::begin(const std::vector<UnitRun>& present) {
  const auto header = encode_header(identity_);
  if (present.empty()) {
    fd_ = open_file(path_, O_RDWR | O_CREAT | O_TRUNC);
    pwrite_all(fd_.get(), 0, header, path_.string());
    end_ = header.size();
    groups_ = 0;
    return;
  }
  auto fresh_path = path_;
  fresh_path += ".new";
  PresenceLog fresh(fresh_path, identity_);
  fresh.begin({});
  fresh.append(present, true);
  if (::rename(fresh_path.c_str(), path_.c_str()) != 0) fail_errno("rename {}", fresh_path.string());
  fd_ = std::move(fresh.fd_);
  end_ = fresh.end_;
  groups_ = fresh.groups_;
}

void PresenceLog::append(const std::vector<UnitRun>& runs, bool present) {
  Bytes groups;
  std::uint64_t count = 0;
  for (std::size_t from = 0; from < runs.size(); from += kMaxRunsPerGroup, ++count) {
    const auto to = std::min(runs.size(), from + kMaxRunsPerGroup);
    Bytes group;
    append_le<std::uint32_t>(group, kGroupMagic);
    append_le<std::uint32_t>(group, std::uint32_t(to - from));
    append_le<std::uint32_t>(group, std::uint32_t(present ? GroupKind::kPresent : GroupKind::kGone));
    append_le<std::uint32_t>(group, 0);  // reserved
    for (auto run = from; run < to; ++run) {
      append_le<std::uint32_t>(group, runs[run].first);
      append_le<std::uint32_t>(group, runs[run].count);
    }
    varve::append(group, check_of(salt_, end_ + groups.size(), group));
    varve::append(groups, group);
  }
  try {
    pwrite_all(fd_.get(), end_, groups, path_.string());
    if (::fdatasync(fd_.get()) != 0) fail_errno("sync {}", path_.string());
  } catch (...) {
    // What was written of it must not come back to life behind a shorter group. If this fails too, the next append
    // overwrites it.
    static_cast<void>(::ftruncate(fd_.get(), off_t(end_)));
    throw;
  }
  end_ += groups.size();
  groups_ += count;
}

}  // namespace varve::fuse
