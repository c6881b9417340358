// Mounts that nobody uses and that are kept for the next session. They hold nobody up: an end, a removal or a full
// store takes them at once.
#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/daemon/daemon.h"

namespace varve::fuse {

namespace fs = std::filesystem;

// What a user has mounted himself is his to unmount, and a recording begins with caches that nobody else has filled.
bool Daemon::may_keep(const ImageMount& mount) const {
  return mount.shared && options_.keep_mounted.count() > 0 && !draining_ && !stopping_.cancelled();
}

void Daemon::begin_idle(ImageMount& mount, std::chrono::seconds keep) {
  const auto since = std::chrono::steady_clock::now() - (options_.keep_mounted - keep);
  images_.set_idle(mount, std::min(since, mount.idle_since.value_or(since)));
  end_fill(mount);
  images_.set_fill(mount, false);
  images_.set_missing_at_first(mount, std::nullopt);
  images_.set_prefetch(mount, nullptr);  // nobody waits for it; the next session begins it again
  log::info("nobody uses {} any more; it stays mounted for at most {} s", mount.dir.string(), keep.count());
}

void Daemon::end_if_idle(const fs::path& dir, std::string_view why) {
  const auto* mount = images_.find(dir);
  if (mount == nullptr || !mount->idle_since) return;
  log::info("unmounting {}, which nobody uses: {}", dir.string(), why);
  end_mount(dir);
}

void Daemon::end_all_idle(std::string_view why) {
  for (const auto& idle : images_.idle()) end_if_idle(idle.dir, why);
}

// What the kernel reads from files of the store cannot be evicted from it while it is mounted.
bool Daemon::store_is_crowded(IdleTime now) {
  const auto& limit = options_.streams.store_limit;
  if (limit.max_bytes == 0 || streams_->store_bytes() <= limit.max_bytes) {
    crowded_since_.reset();
    return false;
  }
  if (!crowded_since_) crowded_since_ = now;
  // So long evicting what else there is may take.
  if (now - *crowded_since_ < std::chrono::seconds(limit.grace_seconds) + 2 * kIdleLook) return false;
  crowded_since_.reset();
  return true;
}

void Daemon::look_at_idle() noexcept try {
  auto idle = images_.idle();
  if (idle.empty()) return crowded_since_.reset();
  const auto now = std::chrono::steady_clock::now();
  const bool memory = memory_.look(now);
  const bool store = store_is_crowded(now);
  const auto ending = idle_mounts_to_end(std::move(idle), options_.keep_mounted, now, memory || store);
  if (ending.empty()) return;
  const auto why = memory  ? "processes wait for memory"
                   : store ? "the store is full"
                           : "for as long as it was to be kept";
  const Change change(*this);
  for (const auto& mount : ending) end_if_idle(mount, why);
} catch (const std::exception& error) {
  log::error("look at what nobody uses: {}", error.what());
}

void Daemon::drain() {
  draining_ = true;
  const Change change(*this);
  end_all_idle("the daemon is to end");
}

}  // namespace varve::fuse
