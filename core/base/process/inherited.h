#pragma once
// What a process has open besides its standard streams. System calls only, so these may be called between fork(2) and
// exec(2).
#include <span>

namespace varve {

// The next exec(2) closes what is open from 3 on, whoever opened it, but for `keep`.
void close_at_exec_but(std::span<const int> keep) noexcept;
// Closes what is open from 3 on, but for `keep`.
void close_all_but(std::span<const int> keep) noexcept;

// Makes these descriptors of this process lead to /dev/null, whatever they are. False, with errno, if they cannot.
bool lead_nowhere(std::span<const int> fds) noexcept;
inline constexpr int kStandardStreams[] = {0, 1, 2};

// Makes the kernel's table of what this process has open large enough for `count`, or for as many as it may have. Of a
// process with one thread, at once. Else it grows when a 65th is opened, a 129th and so on, and whoever opens it waits
// until every processor has seen that (linux/fs/file.c, expand_fdtable): 5 to 20 ms of a mount's 80.
void make_room_for_open(int count) noexcept;

}  // namespace varve
