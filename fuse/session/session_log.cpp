#include "fuse/session/session_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/file_id.h"

namespace varve::fuse {
namespace {

constexpr std::chrono::milliseconds kFollowLook{100};

UniqueFd open_to_read(const std::filesystem::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno != ENOENT) fail_errno("open {}", path.string());
  return file;
}

void show_rest(const UniqueFd& file, const LogReading& reading, const CancelFlag& cancel) {
  std::array<char, 65536> bytes;
  while (!cancel.cancelled()) {
    const auto got = ::read(file.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read the session's log");
    if (got == 0) return;
    reading.show(std::string_view(bytes.data(), std::size_t(got)));
  }
}

// The files as they follow each other at one moment.
std::pair<UniqueFd, UniqueFd> open_both(const SessionFolder& folder) {
  for (;;) {
    auto earlier = open_to_read(folder.earlier_output());
    auto last = open_to_read(folder.output());
    // Else the one became the other while we looked.
    if (!last || !earlier || is_at(earlier.get(), folder.earlier_output()))
      return {std::move(earlier), std::move(last)};
  }
}

// Leaves `file` where its last `line_ends` line ends begin to follow, or at its start; how many it lacks.
std::uint64_t seek_back(const UniqueFd& file, std::uint64_t line_ends) {
  Bytes block(65536);
  auto end = file_size(file.get(), "the session's log");
  while (end > 0) {
    const auto begin = end - std::min<std::uint64_t>(end, block.size());
    const auto bytes = std::span(block).first(end - begin);
    pread_exactly(file.get(), begin, bytes, "the session's log");
    for (auto i = bytes.size(); i-- > 0;) {
      if (char(bytes[i]) != '\n' || --line_ends != 0) continue;
      ::lseek(file.get(), off_t(begin + i + 1), SEEK_SET);
      return 0;
    }
    end = begin;
  }
  return line_ends;
}

bool ends_a_line(const UniqueFd& file) {
  const auto size = file_size(file.get(), "the session's log");
  Bytes end(std::min<std::uint64_t>(size, 1));
  pread_exactly(file.get(), size - end.size(), end, "the session's log");
  return !end.empty() && char(end[0]) == '\n';
}

// Lines are cut where the files are: one may begin in the earlier and end in the last.
void skip_to_last(std::uint64_t lines, const UniqueFd& earlier, const UniqueFd& last) {
  const auto& newest = last ? last : earlier;
  auto line_ends = lines == 0 ? 0 : lines + (ends_a_line(newest) ? 1 : 0);
  for (const auto* file : {&last, &earlier}) {
    if (!*file) continue;
    if (line_ends == 0)
      ::lseek(file->get(), 0, SEEK_END);
    else
      line_ends = seek_back(*file, line_ends);
  }
}

}  // namespace

SessionLog::SessionLog(SessionFolder folder, std::uint64_t max_file_bytes)
    : folder_(std::move(folder)), max_file_bytes_(max_file_bytes) {
  open_last();
}

void SessionLog::open_last() {
  file_ = open_file(folder_.output(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0600);
  file_bytes_ = file_size(file_.get(), folder_.output());
}

void SessionLog::begin_anew() {
  try {
    if (::rename(folder_.output().c_str(), folder_.earlier_output().c_str()) != 0)
      fail_errno("rename {}", folder_.output().string());
    open_last();
  } catch (const std::system_error&) {  // no room for another file, or the session is removed: what is open stays small
    if (::ftruncate(file_.get(), 0) == 0) file_bytes_ = 0;
  }
}

bool SessionLog::append(ByteView bytes) {
  while (!bytes.empty()) {
    const auto put = ::write(file_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      lost_bytes_ += bytes.size();
      return false;
    }
    file_bytes_ += std::uint64_t(put);
    bytes = bytes.subspan(std::size_t(put));
  }
  return true;
}

void SessionLog::write(ByteView bytes) {
  if (file_bytes_ != 0 && file_bytes_ + bytes.size() > max_file_bytes_) begin_anew();
  if (const auto lost = std::exchange(lost_bytes_, 0);
      lost != 0 && !append(as_bytes(fmt::format("\n[varve: {} bytes found no room on the disk]\n", lost)))) {
    lost_bytes_ = lost + bytes.size();
    return;
  }
  append(bytes);
}

void read_log(const SessionFolder& folder, const LogReading& reading, const CancelFlag& cancel) {
  auto [earlier, last] = open_both(folder);
  if (!last && !earlier)
    fail<NotFound>("the session has no log: it was not started with -d, and what it said went to its terminal");
  if (reading.last_lines) skip_to_last(*reading.last_lines, earlier, last);
  if (earlier) show_rest(earlier, reading, cancel);
  while (last && !cancel.cancelled()) {
    const bool goes_on = reading.follow && reading.running();
    const bool is_last =
        is_at(last.get(), folder.output());  // asked before the rest is read: nothing is added to it later
    show_rest(last, reading, cancel);
    if (auto next = is_last ? UniqueFd() : open_to_read(folder.output())) {
      last = std::move(next);
    } else if (goes_on) {
      Clock::system().sleep_for(kFollowLook);
    } else {
      return;
    }
  }
}

}  // namespace varve::fuse
