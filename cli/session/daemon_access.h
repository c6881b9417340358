#pragma once
// What commands that talk to the daemon share.
#include <filesystem>
#include <string>

#include "cli/command.h"
#include "core/base/progress.h"
#include "fuse/control/control_client.h"

namespace varve::cli {

inline constexpr const char* kImageHelp = "The image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]";

fuse::DaemonPaths daemon_paths(const Context& context);
fuse::ImageSpec image_spec(const Context& context, const std::string& reference);
// The daemon of this root, started if none runs.
fuse::ControlClient connect_or_start_daemon(const Context& context);

// What a person is told at the end of a mount or session: how many reads failed, and why the last did. "" if none.
std::string failed_reads(std::uint64_t errors, const std::string& last_error);
// Of a mount since it was opened.
std::string failed_reads(const fuse::DaemonStatus& status, const std::filesystem::path& dir);

// The full name of a mount point without looking into it: only its parent folder is resolved, so that a mount that
// hangs hangs nobody here.
std::filesystem::path name_of_mount_point(const std::filesystem::path& dir);

// Turns the daemon's counts into a progress line.
fuse::ProgressCallback show_progress(Progress& progress);

}  // namespace varve::cli
