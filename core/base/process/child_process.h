#pragma once
// Another program: as a child (what it says, how it ended, and its end when it takes too long, with everything it
// started), or in place of this one.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/threads/cancel.h"

namespace varve {

struct ChildProgram {
  std::vector<std::string> words;  // the program, looked for in PATH if it has no slash, and its arguments
  std::string_view input;          // what it gets on its standard input, which then ends
  std::chrono::milliseconds limit{std::chrono::hours(24)};
  std::size_t max_output = 64u << 20;                   // of each of its outputs; what is beyond is read and dropped
  std::optional<std::vector<std::string>> environment;  // NAME=value; absent: this process's own
  std::uint64_t max_memory_bytes = 0;                   // of address space; 0 = as much as this process may have
  // Processes that it left behind are ended too, also those that made themselves a session of their own. Only one child
  // of a process may be so at a time, and the process may have no other children that end meanwhile.
  bool end_descendants = false;
  int passed_fd = -1;          // what it has as descriptor 3
  bool shows_errors = false;   // its standard error is this process's, and not gathered
  bool in_foreground = false;  // a person's: it has this process's standard input, process group and signals, and both
                               // its outputs go to this process's standard error
};

// What this process's environment says: NAME=value.
std::vector<std::string> own_environment();

struct ChildResult {
  int exit_status = 0;  // 128 + signal for a killed one; 127: there is no such program, 126: it may not be executed.
                        // Both say so in `err`
  bool timed_out = false;
  std::string out, err;
  double seconds = 0;
};

// Runs it to its end, which is when the program ends: descendants that keep its outputs open do not hold it up. It is
// the leader of a process group of its own, so a terminal's ^C reaches the caller alone; at the limit, and when
// `cancel` is set, the whole group is killed. Safe to use from any thread but for end_descendants. Throws Cancelled,
// std::system_error naming the program.
ChildResult run_child(const ChildProgram& program, const CancelFlag& cancel);

// execve(2) with this process's environment, of a process that may have other threads: until they end with it, they can
// still start threads. words[0] is a path. Throws std::system_error naming the program.
[[noreturn]] void execute_in_place(const std::vector<std::string>& words);

}  // namespace varve
