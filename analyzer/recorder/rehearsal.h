#pragma once
// Runs a command under the real recorder with a spool of its own, to show what it would write. Nothing stays, nothing
// is collected.
#include <optional>
#include <string>
#include <vector>

namespace varve::recorder {

struct RehearsalOptions {
  std::vector<std::string> command;  // at least one word; searched in $PATH
  std::optional<std::string> user;   // recorded as if this were the user's name
};
struct RehearsedFile {
  std::string name;  // of the spool file
  std::string content;
};
struct Rehearsal {
  std::vector<RehearsedFile> files;  // in the order in which the processes wrote last
  int exit_status = 0;               // of the command; 128 + n if signal n ended it
};

// The recorder is found by the command's Pythons through $PYTHONPATH, so nothing has to be installed; isolated Pythons
// (-I, -E, -S) do not find it. The command's standard output goes to this process's standard error. Throws
// std::system_error if the command cannot be started.
Rehearsal rehearse(const RehearsalOptions& options);

}  // namespace varve::recorder
