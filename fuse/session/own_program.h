#pragma once
// This program's own file, kept from a session that gets hold of it.
#include <string>

namespace varve::fuse {

// Without a container runtime it is this program that executes a session's command, and an image may name it there by
// /proc/self/exe, as the interpreter of a script: what then runs has the file open, may change its mode at once, and
// hand it to somebody who writes to it when nobody executes it any more (CVE-2019-5736). So where this process's user
// could change the file, this executes the program anew, from a mount that is read-only or, without the right to mount,
// from a sealed copy in memory: with `argv`, but `path` in place of its first word. Returns if the file cannot be
// changed, so in the program executed anew. Call from a process with one thread that has not begun anything. Throws
// std::system_error.
void execute_unchangeable(const std::string& path, const char* const* argv);

}  // namespace varve::fuse
