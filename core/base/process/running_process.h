#pragma once
// A process of this machine that cannot be taken for a later one of its number.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <system_error>
#include <vector>

#include "core/base/files/unique_fd.h"

namespace varve {

// A value. A number alone may come again; with its start time it does not until the machine starts anew.
struct RunningProcess {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot, as in /proc/PID/stat
  bool operator==(const RunningProcess&) const = default;
};

// Absent: no such process (any more), as seen from this PID namespace.
std::optional<RunningProcess> find_process(pid_t pid);

// A descriptor that becomes readable when the process ends, and that stands for it in system calls (pidfd_open(2));
// none if it has ended, or if its number belongs to another process now.
UniqueFd open_process(const RunningProcess& process);

// To a process that open_process() has opened. Why it cannot be sent; that the process has ended is no reason.
std::error_code send_signal(const UniqueFd& process, int signal);

// Those that its main thread has made, oldest first; none if there is no such process.
std::vector<pid_t> children_of(pid_t process);

}  // namespace varve
