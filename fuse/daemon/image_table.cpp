#include "fuse/daemon/image_table.h"

#include <algorithm>
#include <utility>

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ImageMount> take_at(std::vector<std::unique_ptr<ImageMount>>& mounts, const fs::path& dir) {
  const auto found = std::ranges::find(mounts, dir, [](const auto& mount) { return mount->dir; });
  if (found == mounts.end()) return nullptr;
  auto mount = std::move(*found);
  mounts.erase(found);
  return mount;
}

}  // namespace

void ImageMount::unmount() noexcept {
  prefetch.reset();
  mounted->end();
}

ImageMount::~ImageMount() {
  prefetch.reset();
  mounted.reset();
  std::error_code ignored;  // busy and detached: the folders are free all the same
  for (const auto& folder : folders) fs::remove(folder, ignored);
}

ImageMount& ImageTable::add(std::unique_ptr<ImageMount> mount) {
  return *state_.with([&](State& state) { return state.mounts.emplace_back(std::move(mount)).get(); });
}

ImageMount* ImageTable::find(const fs::path& dir) {
  return find_if([&](const ImageMount& mount) { return mount.dir == dir; });
}

ImageMount* ImageTable::find_if(const std::function<bool(const ImageMount&)>& fits) {
  return state_.with([&](State& state) -> ImageMount* {
    const auto found = std::ranges::find_if(state.mounts, [&](const auto& mount) { return fits(*mount); });
    return found == state.mounts.end() ? nullptr : found->get();
  });
}

std::shared_ptr<ServedImage> ImageTable::find_image(const std::function<bool(const ImageMount&)>& fits) {
  std::shared_ptr<ServedImage> found;
  for_each([&](const ImageMount& mount) {
    if (!found && fits(mount)) found = mount.mounted->served();
  });
  return found;
}

void ImageTable::for_each(const std::function<void(const ImageMount&)>& look) {
  state_.with([&](State& state) {
    for (const auto& mount : state.mounts) look(*mount);
  });
}

void ImageTable::set_prefetch(ImageMount& mount, std::unique_ptr<Prefetch> prefetch) {
  state_.with([&](State&) { mount.prefetch.swap(prefetch); });
}

void ImageTable::set_fill(ImageMount& mount, bool fill) {
  state_.with([&](State&) { mount.fill = fill; });
}

void ImageTable::set_missing_at_first(ImageMount& mount, std::optional<std::uint64_t> bytes) {
  state_.with([&](State&) { mount.missing_at_first = bytes; });
}

void ImageTable::set_idle(ImageMount& mount, std::optional<IdleTime> since) {
  state_.with([&](State&) { mount.idle_since = since; });
}

std::vector<IdleMount> ImageTable::idle() {
  std::vector<IdleMount> idle;
  for_each([&](const ImageMount& mount) {
    if (mount.idle_since) idle.push_back({.dir = mount.dir, .since = *mount.idle_since});
  });
  return idle;
}

std::uint64_t ImageTable::prefetched_bytes(const Digest& image) {
  std::uint64_t bytes = 0;
  for_each([&](const ImageMount& mount) {
    if (mount.prefetch && mount.mounted->image().digest() == image) bytes += mount.prefetch->fetched_bytes();
  });
  return bytes;
}

std::unique_ptr<ImageMount> ImageTable::remove(const fs::path& dir) {
  return state_.with([&](State& state) { return take_at(state.mounts, dir); });
}

std::vector<std::unique_ptr<ImageMount>> ImageTable::remove_all() {
  return state_.with([](State& state) { return std::exchange(state.mounts, {}); });
}

ImageMount* ImageTable::begin_to_end(const fs::path& dir) {
  return state_.with([&](State& state) -> ImageMount* {
    auto mount = take_at(state.mounts, dir);
    return mount ? state.ending.emplace_back(std::move(mount)).get() : nullptr;
  });
}

std::unique_ptr<ImageMount> ImageTable::remove_ending(const ImageMount& mount) {
  return state_.with([&](State& state) { return take_at(state.ending, mount.dir); });
}

bool ImageTable::is_any_ending(const std::function<bool(const ServedImage&)>& fits) {
  return state_.with([&](State& state) {
    return std::ranges::any_of(state.ending, [&](const auto& mount) { return fits(mount->mounted->image()); });
  });
}

bool ImageTable::is_taken(const fs::path& dir) {
  const auto is_at = [&](const auto& mount) { return mount->dir == dir; };
  return state_.with([&](State& state) {
    return std::ranges::any_of(state.mounts, is_at) || std::ranges::any_of(state.ending, is_at);
  });
}

void ImageTable::set_name(const HandoverName& name) {
  state_.with([&](State& state) { state.names[name.dir] = name; });
}

std::optional<HandoverName> ImageTable::find_name(const fs::path& dir) {
  return state_.with([&](State& state) -> std::optional<HandoverName> {
    const auto found = state.names.find(dir);
    return found == state.names.end() ? std::nullopt : std::optional(found->second);
  });
}

void ImageTable::remove_name(const fs::path& dir) {
  state_.with([&](State& state) { state.names.erase(dir); });
}

std::vector<HandoverName> ImageTable::names() {
  return state_.with([](State& state) {
    std::vector<HandoverName> names;
    for (const auto& [dir, name] : state.names) names.push_back(name);
    return names;
  });
}

bool ImageTable::has_name(const fs::path& mount) {
  return state_.with([&](State& state) {
    return std::ranges::any_of(state.names, [&](const auto& name) { return name.second.mount == mount; });
  });
}

void ImageTable::write_to(Handover& record) {
  state_.with([&](State& state) {
    for (const auto* mounts : {&state.mounts, &state.ending})
      for (const auto& mount : *mounts)
        record.mounts.push_back({.dir = mount->dir,
                                 .index = mount->mounted->image().tree_name(),
                                 .connection = mount->mounted->connection(),
                                 .mode = mount->mounted->mode(),
                                 .why = mount->why,
                                 .shared = mount->shared,
                                 .fill = mount->fill,
                                 .missing_at_first = mount->missing_at_first,
                                 .idle_since = mount->idle_since});
  });
  record.names = names();
}

}  // namespace varve::fuse
