#pragma once
// One process's file in a usage spool. Format: docs/formats/usage-spool.md.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "analyzer/usage/spool.h"
#include "core/base/files/unique_fd.h"

namespace varve::usage {

// Random, as the format wants them: 32 and 16 lower case hex digits.
std::string new_session_id();
std::string new_process_id();

// Who the user is, told so that he cannot be followed into the next month: docs/formats/usage-spool.md, "Who the user
// is". `variable` looks up the environment; absent or empty means not set. The salt is kept in `salts`, a folder that
// must be this user's alone: it is made 0700, with the month's salt, by the first who needs one, and older salts go
// then. Throws Error for a folder or a salt of somebody else, and std::system_error.
using Variable = std::function<std::optional<std::string>(const std::string& name)>;
std::string user_hash(const std::filesystem::path& salts, const Variable& variable,
                      std::chrono::system_clock::time_point now);

// True if the user or the image's owner does not want to be recorded: DO_NOT_TRACK (anything but empty and "0"),
// VARVE_USAGE=off.
bool is_switched_off(const Variable& variable);

// Appends whole lines; what does not fit the bound of a file is counted and ends it with one `full` record. Not shared
// between threads.
class SpoolWriter {
 public:
  // Makes SPOOL/SESSION-PROCESS.jsonl, 0600, with its `start` record. Throws std::system_error if there is one already,
  // or none can be made.
  SpoolWriter(const std::filesystem::path& spool, StartRecord start, std::uint64_t max_bytes = kMaxSpoolFileBytes);

  // `at` is the time since the writer was made, in steps of 10 s. False from the moment the file is full, or can no
  // longer be written to: the first such failure is kept for failure(), and nothing more is written.
  bool write(decltype(SpoolRecord::what) what);

  const std::filesystem::path& path() const { return path_; }
  const std::string& failure() const { return failure_; }

 private:
  bool append(std::string_view line);

  std::filesystem::path path_;
  UniqueFd file_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  bool full_ = false;
  std::string failure_;
};

}  // namespace varve::usage
