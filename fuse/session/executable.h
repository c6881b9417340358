#pragma once
// A session's command in a root folder, where nothing can hide it.
#include <string>
#include <vector>

#include "fuse/session/rootfs.h"

namespace varve::fuse {

enum class Executable { kFound, kMissing, kForbidden };

// Where a name is searched for, and how: by the rules of execvp(3).
struct SearchedCommand {
  std::string name;
  std::vector<std::string> environment;  // its PATH counts
  std::string working_dir;               // absolute
};

struct FoundCommand {
  Executable is = Executable::kMissing;
  std::string path;  // in the root folder, not free of symlinks; of what is found only
};

// Throws std::system_error.
FoundCommand find_command(const Rootfs& rootfs, const SearchedCommand& command);

// Reads the first bytes of all files that execve(2) would read of the command: a script's interpreter, too, and what
// env(1) is told to run. What is not there is no error. Throws std::system_error.
void read_heads(const Rootfs& rootfs, const SearchedCommand& command);

}  // namespace varve::fuse
