#pragma once
// Recording what a command reads of an image, by a `varve profile record` of this very program, since a session must
// begin in a process of one thread.
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/session/session_options.h"
#include "core/index/format/profile.h"

namespace varve::cli {

struct RecordedStart {
  int exit_status = 0;  // of the command; 124 when the time was up, 125 if Varve failed before it
  std::string out, err;
  index::Profile profile;
};

// In a session without network on a mount of its own, of which nothing stays. `file` is written. Safe to use from any
// thread. Throws Cancelled.
RecordedStart record_start(const Context& context, const std::string& image, const std::vector<std::string>& command,
                           const DeviceOptions& devices, const std::filesystem::path& file, std::chrono::seconds limit);

}  // namespace varve::cli
