#include "cli/session/run_recording.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/session/rootfs.h"

namespace varve::cli {
namespace {

using recorder::SessionRecording;

// `rootfs` must outlive it.
recorder::ImageTree tree_of(const fuse::Rootfs& rootfs) {
  return {.list = [&rootfs](const std::string& path) -> std::optional<recorder::ListedFolder> {
            auto folder = rootfs.list(path);
            if (!folder) return std::nullopt;
            return recorder::ListedFolder{.identity = folder->inode, .names = std::move(folder->names)};
          },
          .has = [&rootfs](const std::string& path) { return rootfs.open_path(path, O_PATH).has_value(); }};
}

void add_to(fuse::SessionRequest& request, SessionRecording& recording, const recorder::ImageTree& tree) {
  auto needs = recording.needs(tree);
  for (auto& mount : needs.mounts)
    request.own_volumes.push_back(
        {.source = std::move(mount.source), .destination = std::move(mount.destination), .read_only = mount.read_only});
  for (auto& variable : needs.env) request.options.env.push_back(std::move(variable));
  request.on_access = [&recording](const std::string& path, bool executed) {
    return recording.note_file(path, executed);
  };
  if (::geteuid() == 0) return;
  request.at_end = [take_over = recording.take_over()] {
    try {
      take_over();
    } catch (const std::exception& error) {
      log::info("take over the records of the session: {}", error.what());
    }
  };
}

}  // namespace

std::filesystem::path own_spool(const std::filesystem::path& root) { return root / "usage/spool"; }

std::unique_ptr<SessionRecording> begin_recording(SessionRecording::Wanted wanted, fuse::SessionRequest& request,
                                                  const std::function<void(const std::string&)>& warn) {
  wanted.image_env = request.config.env;
  wanted.session_env = request.options.env;
  const auto plain = request;
  std::unique_ptr<SessionRecording> recording;
  try {
    const auto rootfs = fuse::Rootfs::open(request.lower);
    const auto tree = tree_of(rootfs);
    recording = std::make_unique<SessionRecording>(std::move(wanted), tree);
    if (recording->switched_on()) add_to(request, *recording, tree);
  } catch (const std::exception& error) {
    request = plain;
    warn(fmt::format("{}: {}", recording ? "of the session only its launch is recorded" : "the session is not recorded",
                     error.what()));
  }
  return recording;
}

}  // namespace varve::cli
