#include "cli/session/daemon_access.h"

#include <fmt/format.h>

#include "core/base/text/safe_text.h"

namespace varve::cli {

fuse::DaemonPaths daemon_paths(const Context& context) {
  return {.root = context.global.root, .run_dir = context.global.run_dir};
}

fuse::ImageSpec image_spec(const Context& context, const std::string& reference) {
  return fuse::ImageSpec::from_user(reference, context.global.platform, context.global.registry);
}

fuse::ControlClient connect_or_start_daemon(const Context& context) {
  return fuse::ControlClient::connect_or_start(daemon_paths(context), context.program);
}

std::string failed_reads(std::uint64_t errors, const std::string& last_error) {
  if (errors == 0) return "";
  return fmt::format("{} {} of the image failed, the last one: {}", errors, errors == 1 ? "read" : "reads",
                     message_text(last_error));
}

std::string failed_reads(const fuse::DaemonStatus& status, const std::filesystem::path& dir) {
  for (const auto& mount : status.mounts)
    if (mount.dir == dir) return failed_reads(mount.stats.errors, mount.stats.last_error);
  return "";
}

std::filesystem::path name_of_mount_point(const std::filesystem::path& dir) {
  auto path = std::filesystem::absolute(dir).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code error;
  const auto parent = std::filesystem::canonical(path.parent_path(), error);
  return error || !path.has_filename() ? path : parent / path.filename();
}

fuse::ProgressCallback show_progress(Progress& progress) {
  return [&progress](std::uint64_t done_bytes, std::uint64_t expected_bytes) {
    const auto raise = [](std::uint64_t now, std::uint64_t to) { return to > now ? to - now : 0; };
    progress.expect(raise(progress.expected_bytes(), expected_bytes));
    progress.add(raise(progress.done_bytes(), done_bytes));
  };
}

}  // namespace varve::cli
