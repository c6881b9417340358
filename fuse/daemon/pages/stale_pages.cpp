#include "fuse/daemon/pages/stale_pages.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"
#include "fuse/control/control_protocol.h"
#include "fuse/daemon/pages/reread_mount.h"
#include "fuse/daemon/pages/shown_files.h"
#include "fuse/daemon/verify_streams.h"
#include "fuse/mount/mount_table.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxStalePagesBytes = 16 << 20;
constexpr std::size_t kMaxNoted = 100'000;

// A range of a stream that was damaged, with its place in a list.
struct Damaged {
  std::size_t noted = 0;
  std::shared_ptr<LayerStream> stream;
  ByteRange range;
};

// Where damaged bytes are seen: in a file, and what ought to be there.
struct Sight {
  FilePart part;
  std::uint64_t stream_offset = 0;
  const Damaged* damaged = nullptr;
};

// All files of the tree in which damaged bytes are seen.
std::vector<Sight> find_sights(const ServedImage& image, const std::vector<Damaged>& damaged) {
  std::vector<Sight> sights;
  for_each_file(*image.index().tree, [&](index::Nid file, const std::string& folder, std::string_view name) {
    for (const auto& piece : content_of(image, file)) {
      for (const auto& one : damaged) {
        if (one.stream.get() != piece.stream) continue;
        const auto seen = one.range.common_with({.offset = piece.stream_offset, .length = piece.length});
        if (seen.length == 0) continue;
        const ByteRange in_file{.offset = piece.into + (seen.offset - piece.stream_offset), .length = seen.length};
        sights.push_back({.part = {.path = join_path(folder, name), .range = in_file},
                          .stream_offset = seen.offset,
                          .damaged = &one});
      }
    }
  });
  return sights;
}

// The disk is asked for what was written to it, not the memory.
void bring_to_disk(const LayerStream& stream, ByteRange range) {
  const auto file = open_file(stream.store_file(), O_RDONLY);
  if (::fdatasync(file.get()) != 0) fail_errno("sync {}", stream.store_file().string());
  ::posix_fadvise(file.get(), off_t(range.offset), off_t(range.length), POSIX_FADV_DONTNEED);
}

// The stream of the image that is meant; null if it shows no such layer, or not by that map.
std::shared_ptr<LayerStream> stream_of(const ServedImage& image, const Digest& layer, const Digest& map) {
  const auto& blobs = image.index().blobs.layers;
  const auto found =
      std::ranges::find_if(blobs, [&](const auto& one) { return one.layer_digest == layer && one.map.digest == map; });
  return found == blobs.end() ? nullptr : image.layers().at(std::size_t(found - blobs.begin()));
}

// One mount, with all that was damaged of what it shows.
class MountCheck {
 public:
  MountCheck(const MountedServed& mount, std::vector<Damaged> damaged)
      : mount_(mount), damaged_(std::move(damaged)), sights_(find_sights(*mount.image, damaged_)) {}

  void run(const CancelFlag& cancel) {
    std::vector<FilePart> parts;
    for (const auto& sight : sights_) parts.push_back(sight.part);
    reread_mount(mount_.dir, parts, cancel, [this](auto part, auto offset, int error, ByteView bytes) {
      look_at(sights_[part], offset, error, bytes);
    });
  }
  // Of the list that was damaged.
  const std::set<std::size_t>& wrong() const { return wrong_; }
  StaleMount finding() const {
    const auto& image = *mount_.image;
    return {.image = image.digest(),
            .reference = image.reference(),
            .dir = mount_.dir.string(),
            .file = files_.empty() ? "" : "/" + files_.begin()->string(),
            .files = files_.size(),
            .why = why_};
  }

 private:
  void look_at(const Sight& sight, std::uint64_t offset, int error, ByteView shown) {
    std::string why;
    Bytes right(shown.size());
    if (error != 0)
      why = std::generic_category().message(error);
    else if (!sight.damaged->stream->read_if_readable(sight.stream_offset + offset, right))
      why = "the damaged span is not repaired";
    else if (!std::ranges::equal(right, shown))
      why = "programs have them mapped or in use";
    if (why.empty()) return;
    wrong_.insert(sight.damaged->noted);
    if (files_.insert(sight.part.path).second && files_.size() == 1) why_ = why;
  }

  const MountedServed mount_;
  const std::vector<Damaged> damaged_;
  const std::vector<Sight> sights_;
  std::set<std::size_t> wrong_;
  std::set<fs::path> files_;
  std::string why_;
};

}  // namespace

StalePages::StalePages(fs::path record) : record_(std::move(record)) {
  try {
    const auto text = read_file_if_there(record_, kMaxStalePagesBytes);
    if (!text) return;
    const auto entries = JsonValue::parse(*text, record_.string(), {.bytes = kMaxStalePagesBytes}).items(kMaxNoted);
    auto noted = noted_.lock();
    for (const auto& entry : entries)
      noted->push_back({.layer = entry["layer"].digest(),
                        .map = entry["map"].digest(),
                        .range = {.offset = entry["offset"].number(), .length = entry["length"].number()}});
  } catch (const std::exception& error) {
    log::error("what was damaged under mounts is not known any more: {}: mount anew what was in use", error.what());
  }
}

void StalePages::write(const std::vector<Noted>& noted) const {
  auto entries = nlohmann::json::array();
  for (const auto& one : noted)
    entries.push_back({{"layer", one.layer.to_string()},
                       {"map", one.map.to_string()},
                       {"offset", one.range.offset},
                       {"length", one.range.length}});
  write_file_atomically(record_, as_bytes(entries.dump()), 0600);
}

void StalePages::note(const LayerStream& stream, const std::vector<ByteRange>& bad,
                      const std::vector<MountedServed>& mounts) {
  auto noted = noted_.lock();
  const auto before = noted->size();
  for (const auto& mount : mounts) {
    const auto& layers = mount.image->layers();
    const auto layer = std::ranges::find(layers, &stream, [](const auto& one) { return one.get(); });
    if (layer == layers.end()) continue;
    const auto& blobs = mount.image->index().blobs.layers.at(std::size_t(layer - layers.begin()));
    for (const auto& range : bad) {
      const Noted one{.layer = blobs.layer_digest, .map = blobs.map.digest, .range = range};
      if (std::ranges::find(*noted, one) == noted->end()) noted->push_back(one);
    }
  }
  if (noted->size() > before) write(*noted);
}

std::vector<StaleMount> StalePages::drop(const std::vector<std::shared_ptr<LayerStream>>& streams,
                                         const std::vector<MountedServed>& mounts, const CancelFlag& cancel) {
  const auto all = *noted_.lock();
  std::vector<StaleMount> stale;
  std::set<std::size_t> wrong;
  std::set<std::size_t> looked_at;
  bool sources_answer = true;  // else nobody waits for them once more
  for (const auto& mount : mounts) {
    std::vector<Damaged> damaged;
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto stream = stream_of(*mount.image, all[i].layer, all[i].map);
      if (!stream || std::ranges::find(streams, stream) == streams.end()) continue;
      // A daemon that died may have forgotten what it had repaired.
      sources_answer = sources_answer && (stream->is_readable(all[i].range) || fetch_anew(*stream, all[i].range));
      if (stream->is_readable(all[i].range)) bring_to_disk(*stream, all[i].range);
      looked_at.insert(i);
      damaged.push_back({.noted = i, .stream = std::move(stream), .range = all[i].range});
    }
    if (damaged.empty()) continue;
    MountCheck check(mount, std::move(damaged));
    check.run(cancel);
    if (check.wrong().empty()) continue;
    if (topmost_at(read_mount_table(), mount.dir) == nullptr) continue;  // unmounted meanwhile
    wrong.insert(check.wrong().begin(), check.wrong().end());
    stale.push_back(check.finding());
    log::error("verify: image {} at {} shows damaged bytes in {} files, {} for one: {}", mount.image->reference(),
               mount.dir.string(), stale.back().files, stale.back().file, stale.back().why);
  }
  if (looked_at.size() == wrong.size()) return stale;
  auto noted = noted_.lock();
  for (const auto i : looked_at)
    if (!wrong.contains(i)) std::erase(*noted, all[i]);
  write(*noted);
  return stale;
}

}  // namespace varve::fuse
