// How mounts end: on request, behind the daemon's back, and with the daemon.
#include <sys/mount.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/daemon/daemon.h"
#include "fuse/daemon/mount_users.h"
#include "fuse/mount/fuse_mount.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void explain_busy(const fs::path& dir, const std::system_error& error) {
  if (error.code().value() != EBUSY) throw error;
  throw std::system_error(
      EBUSY, std::generic_category(),
      fmt::format(
          "unmount {}: a process is in it (`fuser -vm {}` names it; `varve unmount --detach` takes it out of sight)",
          dir.string(), dir.string()));
}

// umount(2) would take away what somebody has put on top.
bool is_covered(const fs::path& dir, const MountEntry& ours) {
  const auto table = read_mount_table();
  const auto* top = topmost_at(table, dir);
  return !ours.dir.empty() && top != nullptr && !top->is_same(ours);
}

}  // namespace

void Daemon::end_mount(const fs::path& dir) {
  if (auto* mount = images_.begin_to_end(dir)) ended_.push_back(mount);
}

Daemon::Change::~Change() {
  const auto ended = std::exchange(daemon_.ended_, {});
  if (ended.empty()) return;
  ++daemon_.unmounting_;
  lock_.unlock();
  for (auto* mount : ended) mount->unmount();
  lock_.lock();
  for (const auto* mount : ended) daemon_.images_.remove_ending(*mount);
  daemon_.streams_->close_unused();
  daemon_.write_record();
  --daemon_.unmounting_;
  daemon_.unmounted_.notify_all();
}

void Daemon::Change::wait_until_unmounted(const std::function<bool(const ServedImage&)>& fits) {
  daemon_.unmounted_.wait(lock_, [&] { return !daemon_.images_.is_any_ending(fits); });
}

void Daemon::Change::wait_until_unmounted(const ServedImage& image) {
  wait_until_unmounted([&](const ServedImage& ending) { return ending.tree_name() == image.tree_name(); });
}

std::unique_lock<std::mutex> Daemon::when_nothing_ends() {
  std::unique_lock lock(changing_);
  unmounted_.wait(lock, [this] { return unmounting_ == 0; });
  return lock;
}

void Daemon::unmount_name(const HandoverName& name, bool detach) {
  const auto* mount = images_.find(name.mount);
  if (mount != nullptr && is_covered(name.dir, mount->entry))
    fail<Error>("unmount {}: another file system was mounted over it; unmount that first", name.dir.string());
  if (name.bound)
    unmount_dir(name.dir, detach, false);
  else if (mount != nullptr)
    mount->mounted->unmount(detach);
  images_.remove_name(name.dir);
}

void Daemon::unmount(const fs::path& wanted_dir, bool detach) {
  const Change change(*this);
  drop_vanished_mounts();
  // Not canonical(): that would look into a mount which may hang.
  const auto dir = wanted_dir.lexically_normal();
  const auto found = images_.find_name(dir);
  if (!found) fail<NotFound>("{}: varve has mounted nothing there", dir.string());
  try {
    unmount_name(*found, detach);
  } catch (const std::system_error& error) {
    explain_busy(dir, error);
  }
  log::info("unmounted {}", dir.string());
  end_use(found->mount, Afterwards::kUnmount);
}

void Daemon::notice_unmounts() {
  const Change change(*this);
  drop_vanished_mounts();
}

// The folder of its own that a shared mount has lost, from one that a user named. What comes later is bound from there.
bool Daemon::restore_shared(const ImageMount& mount, const std::vector<MountEntry>& table) {
  return std::ranges::any_of(images_.names(), [&](const HandoverName& name) {
    return name.mount == mount.dir && name.bound && is_mounted_at(table, name.dir, mount.entry) &&
           !is_covered(name.dir, mount.entry) &&
           ::mount(name.dir.c_str(), mount.dir.c_str(), nullptr, MS_BIND, nullptr) == 0;
  });
}

void Daemon::drop_vanished_mounts() {
  const auto table = read_mount_table();
  std::vector<const ImageMount*> gone;
  images_.for_each([&](const ImageMount& mount) {
    if (!mount.is_at(table, mount.entry.dir)) gone.push_back(&mount);
  });
  bool changed = false;
  for (const auto* mount : gone) {
    if (restore_shared(*mount, table)) continue;
    auto taken = images_.remove(mount->dir);
    log::info("{}: somebody else has unmounted it; who has files of it open is served on", taken->dir.string());
    taken->mounted->note_unmounted();
    changed = true;
    const auto image = taken->mounted->served();
    const auto mode = taken->mounted->mode();
    const auto [dir, why] = std::pair(taken->dir, taken->why);
    taken.reset();  // with it goes its folder
    mount_held_again(dir, image, mode, why);
  }
  for (const auto& name : images_.names()) {
    const auto* mount = images_.find(name.mount);
    if (!name.settled || (mount != nullptr && mount->is_at(table, name.dir))) continue;
    log::info("{}: somebody else has unmounted it", name.dir.string());
    images_.remove_name(name.dir);
    end_use(name.mount, Afterwards::kUnmount);
    changed = true;
  }
  if (changed) write_record();
}

MountUse Daemon::use_of(const HandoverName& name) {
  MountUse use{
      .dir = name.dir.string(), .image = {}, .reference = {}, .session = false, .held_by = {}, .processes = {}};
  if (const auto* mount = images_.find(name.mount)) {
    use.image = mount->mounted->image().digest();
    use.reference = mount->mounted->image().reference();
  }
  use.processes = find_users(name.dir);
  return use;
}

std::vector<MountUse> Daemon::uses() {
  std::vector<MountUse> uses;
  images_.for_each([&](const ImageMount& mount) {
    const auto holders = leases_.holders(mount.dir);
    const auto held_by = leases_.held_by(mount.dir);
    if (holders.empty() && held_by.empty()) return;
    auto& use = uses.emplace_back(MountUse{.dir = mount.dir.string(),
                                           .image = mount.mounted->image().digest(),
                                           .reference = mount.mounted->image().reference(),
                                           .session = true,
                                           .held_by = held_by,
                                           .processes = {}});
    for (const auto& holder : holders)
      use.processes.push_back(holder ? name_of_process(holder->pid) : ProcessName{.pid = 0, .name = ""});
  });
  for (const auto& name : images_.names())
    if (is_busy(name.dir)) uses.push_back(use_of(name));
  return uses;
}

// Returns those that somebody has begun to use meanwhile.
std::vector<MountUse> Daemon::unmount_what_is_free() {
  std::vector<MountUse> uses;
  for (const auto& name : images_.names()) {
    try {
      unmount_name(name, false);
    } catch (const std::exception& error) {
      log::info("{}", error.what());
      uses.push_back(use_of(name));
      continue;
    }
    if (!uses.empty()) end_use(name.mount, Afterwards::kUnmount);
  }
  return uses;
}

StopResult Daemon::begin_stop() {
  const Change change(*this);
  drop_vanished_mounts();
  if (stopping_.cancelled()) return {.in_use = uses()};  // of sessions that are being ended
  StopResult result{.in_use = uses()};
  if (result.in_use.empty()) result.in_use = unmount_what_is_free();
  if (result.in_use.empty()) stopping_.cancel();
  return result;
}

void Daemon::end_sessions(std::chrono::milliseconds grace) {
  {
    const Change change(*this);
    stopping_.cancel();  // no lease comes after those that are asked to end
  }
  end_processes(leases_.holders(), grace);
}

void Daemon::unmount_everything() {
  for (const auto& name : images_.names()) {
    try {
      unmount_name(name, true);
    } catch (const std::exception& error) {
      log::error("{}", error.what());
    }
  }
  images_.remove_all();
}

void Daemon::stop() {
  if (stopped_.exchange(true)) return;
  stopping_.cancel();
  no_more_reads_.cancel();
  look_.reset();
  leases_.clear();
  proofs_.stop();
  contents_.stop();
  {
    const auto lock = when_nothing_ends();
    unmount_everything();
  }
  pulls_.stop();
  local_->wait_until_listed();
  streams_->stop();      // what still waits fails now
  channels_.stop_all();  // nobody asks any more
  options_.descriptors->end();
  std::error_code ignored;
  fs::remove(options_.paths.handover_file(), ignored);
}

}  // namespace varve::fuse
