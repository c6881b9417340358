#pragma once
// What a detached session says: two files in its folder, of which the second is begun anew when it is full.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/files/unique_fd.h"
#include "core/base/threads/cancel.h"
#include "fuse/session/session_store.h"

namespace varve::fuse {

inline constexpr std::uint64_t kMaxOutputBytes = 16 << 20;  // of each of the two files

// Written by one process. What finds no room on the disk is dropped, and that is said in the log when there is room
// again: a full disk does not hold up the session.
class SessionLog {
 public:
  // Goes on behind what is there.
  explicit SessionLog(SessionFolder folder, std::uint64_t max_file_bytes = kMaxOutputBytes);
  void write(ByteView bytes);

 private:
  void open_last();
  void begin_anew();
  bool append(ByteView bytes);

  SessionFolder folder_;
  std::uint64_t max_file_bytes_;
  UniqueFd file_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t lost_bytes_ = 0;
};

// What is there, in order, to `show`. With `follow` also what comes, until `running` says that the session has ended or
// `cancel` is set. Throws NotFound if the session has no log.
struct LogReading {
  bool follow = false;
  std::optional<std::uint64_t> last_lines = {};  // of what is there only so many
  std::function<bool()> running;
  std::function<void(std::string_view)> show;
};
void read_log(const SessionFolder& folder, const LogReading& reading, const CancelFlag& cancel);

}  // namespace varve::fuse
