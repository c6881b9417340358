// The rest of an image, fetched behind who reads of it: where that is asked for, and where most of it is read.
#include <algorithm>

#include "core/base/log.h"
#include "fuse/daemon/daemon.h"
#include "fuse/daemon/fill_choice.h"

namespace varve::fuse {

namespace fs = std::filesystem;

// All that is not cold, while nobody waits for anything else; contents that are here under other images are copied.
void Daemon::start_fill(ImageMount& mount) {
  images_.set_fill(mount, true);
  const auto& image = mount.mounted->served();
  contents_.learn_later(image, ContentSources::By::kEntries);
  pulls_.start_fill({.index = image->index_digest(), .cold = false},
                    {.image = image->digest(), .reference = image->reference()}, layers_to_pull(*image, false),
                    [this] { return streams_->somebody_waits(); });
}

// With its last user. What is here stays.
void Daemon::end_fill(const ImageMount& mount) {
  if (!mount.fill) return;
  const auto& index = mount.mounted->image().index_digest();
  const auto* other = images_.find_if([&](const ImageMount& one) {
    return &one != &mount && one.fill && one.mounted->image().index_digest() == index;
  });
  if (other == nullptr) pulls_.end_fill({.index = index, .cold = false});
}

// What the store may take on: of its disk, and below its own limit.
std::uint64_t Daemon::room_for_fills() const {
  const auto free = fs::space(options_.paths.store_dir()).available;
  const auto limit = options_.streams.store_limit.max_bytes;
  if (limit == 0) return free;
  return std::min<std::uint64_t>(free, limit - std::min(limit, streams_->store_bytes()));
}

void Daemon::look_at_reads() noexcept try {
  struct Used {
    fs::path dir;
    std::shared_ptr<ServedImage> image;
    std::uint64_t missing_at_first;
  };
  std::vector<Used> used;
  images_.for_each([&](const ImageMount& mount) {
    if (!mount.fill && mount.missing_at_first.value_or(0) >= kFillableBytes)
      used.push_back({mount.dir, mount.mounted->served(), *mount.missing_at_first});
  });
  if (used.empty()) return;
  const auto room = room_for_fills();
  std::erase_if(used, [&](const Used& one) {
    return !most_is_read(one.missing_at_first, missing_bytes(one.image->stats()), room);
  });
  if (used.empty()) return;
  const Change change(*this);
  if (draining_ || stopping_.cancelled()) return;
  for (const auto& one : used) {
    auto* mount = images_.find(one.dir);
    if (mount == nullptr || mount->fill || !mount->missing_at_first || mount->mounted->served() != one.image) continue;
    log::info("most of {} was read: the rest is fetched, too", one.image->reference());
    start_fill(*mount);
  }
  write_record();
} catch (const std::exception& error) {
  log::error("look at what was read: {}", error.what());
}

}  // namespace varve::fuse
