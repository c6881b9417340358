#pragma once
// What a service manager has opened for this process: sockets to listen at, and descriptors that it kept
// (sd_listen_fds(3)).

namespace varve {

// They follow each other from here on.
inline constexpr int kFirstHandedFd = 3;

// How many there are; 0 where none are, or they are another process's. Throws UsageError where the variables are no
// number of descriptors.
int count_handed_fds();
// The programs that this one starts are not told of them.
void forget_handed_fds();

}  // namespace varve
