#pragma once
// Who would lose files if a mount went now. Nothing here touches what is mounted: a mount that hangs hangs nobody.
#include <chrono>
#include <filesystem>
#include <vector>

#include "core/base/process/running_process.h"
#include "fuse/control/control_messages.h"

namespace varve::fuse {

// The process's name, as ps(1) shows it; "" if there is none of that number.
ProcessName name_of_process(pid_t pid);

// Processes that have something open in a folder, are in it, run from it or have mapped something of it; as far as this
// process may look at them.
std::vector<ProcessName> find_users(const std::filesystem::path& dir);

// True if unmounting would fail because somebody uses what is mounted at the folder, or an overlay is above it. Root
// asks the kernel (MNT_EXPIRE of umount2(2)), a plain user looks for users.
bool is_busy(const std::filesystem::path& dir);

// Asks processes to end (SIGTERM), kills those that have not after `grace`, and returns when all have ended, or could
// not be killed within a few seconds more. One whose number belongs to another process now is left alone.
void end_processes(const std::vector<RunningProcess>& processes, std::chrono::milliseconds grace);

}  // namespace varve::fuse
