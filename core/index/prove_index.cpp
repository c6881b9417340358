#include "core/index/prove_index.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/codec/tar_parser.h"
#include "core/index/format/layer_entry_reader.h"
#include "core/index/merge/merge_layers.h"
#include "core/trust/tool_version.h"

namespace varve::index {
namespace {

constexpr std::size_t kStepBytes = 1 << 20;

template <typename Take>
void read_through(const LayerMap& map, const ReadStream& read, const Take& take) {
  Bytes buffer(kStepBytes);
  for (std::uint64_t at = 0; at < map.stream_bytes;) {
    const auto part =
        std::span(buffer).first(std::size_t(std::min<std::uint64_t>(buffer.size(), map.stream_bytes - at)));
    read.read(at, part);
    take(ByteView(part));
    at += part.size();
  }
}

// Names, attributes and where content lies; what the content is, its spans say.
class Entries final : public codec::TarListener {
 public:
  explicit Entries(std::string what) : what_(std::move(what)) {}
  void on_entry(codec::TarEntry entry) override { entries.push_back(make_layer_entry(entry, what_)); }
  void on_content(ByteView) override {}
  void on_entry_end() override {}

  std::vector<LayerEntry> entries;

 private:
  const std::string what_;
};

LayerEntries read_entries(const LayerMap& map, const ReadStream& read) {
  const auto what = "layer " + map.layer_digest.to_string();
  Entries listener(what);
  codec::TarParser parser(what, listener);
  read_through(map, read, [&](ByteView bytes) { parser.feed(bytes); });
  parser.finish();
  LayerEntries entries;
  entries.layer_digest = map.layer_digest;
  entries.entries = std::move(listener.entries);
  return entries;
}

void compare_spans(const LayerMap& map, const ReadStream& read) {
  Bytes buffer(kStepBytes);
  for (std::size_t span = 0; span < map.spans.size(); ++span) {
    const auto [offset, length] = map.spans[span].stream_range;
    Sha256 hash;
    for (std::uint64_t done = 0; done < length;) {
      const auto part = std::span(buffer).first(std::size_t(std::min<std::uint64_t>(buffer.size(), length - done)));
      read.read(offset + done, part);
      hash.update(part);
      done += part.size();
    }
    if (hash.finish() != read.digest_of_span(span))
      fail<DamagedStream>("layer {} at stream offset {}: {} bytes are not what its map says",
                          map.layer_digest.to_string(), offset, length);
  }
}

std::string compare_layer(const LayerMap& map, const ReadStream& read) {
  Sha256 hash;
  read_through(map, read, [&](ByteView bytes) { hash.update(bytes); });
  const auto found = hash.finish();
  if (found == map.diff_id) return "";
  return fmt::format("the content of layer {} is {}, and the image's config names {}", map.layer_digest.to_string(),
                     found.to_string(), map.diff_id.to_string());
}

std::string compare_tree(const LoadedIndex& index, const oci::Image& image,
                         const std::function<ReadStream(std::size_t layer)>& read) {
  LayerMerger merger;
  std::vector<std::string> tags;
  std::vector<std::uint64_t> stream_bytes;
  for (std::size_t layer = 0; layer < index.maps.size(); ++layer) {
    merger.add(read_entries(*index.maps[layer], read(layer)));
    tags.push_back(image.config.diff_ids.at(layer).hex());
    stream_bytes.push_back(index.maps[layer]->stream_bytes);
  }
  const auto made = write_erofs(merger.finish(), tags, stream_bytes);
  if (made.ranges.encode() != index.ranges.encode()) return "the ranges of its files are not those of the layers";
  const auto shown = index.tree_mapping.bytes();
  if (std::ranges::equal(made.bytes, shown)) return "";
  const auto differs = std::ranges::mismatch(made.bytes, shown).in1 - made.bytes.begin();
  return fmt::format("its tree is not that of the layers: they differ at byte {}", differs);
}

// Throws what `read` throws; a layer that is no tar differs, too.
std::string differs_from_tree(const LoadedIndex& index, const oci::Image& image,
                              const std::function<ReadStream(std::size_t layer)>& read) {
  try {
    return compare_tree(index, image, read);
  } catch (const CorruptData& error) {
    return error.what();
  }
}

// Of a pack's stream, put together from the layers.
class PackComparison {
 public:
  PackComparison(const StartGroup& group) : group_(group) {}

  void add(ByteView bytes) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::size_t(std::min(bytes.size(), kPackFrameBytes - in_frame_)));
      hash_.update(part);
      in_frame_ += part.size();
      if (in_frame_ == kPackFrameBytes) end_frame();
      bytes = bytes.subspan(part.size());
    }
  }
  std::string finish() {
    if (in_frame_ != 0) end_frame();
    return std::move(differs_);
  }

 private:
  void end_frame() {
    if (hash_.finish() != group_.pack.frames[frame_].stream_digest && differs_.empty())
      differs_ =
          fmt::format("frame {} of the start-up pack of {} does not hold the bytes of the layers", frame_, group_.name);
    hash_ = Sha256();
    in_frame_ = 0;
    ++frame_;
  }

  const StartGroup& group_;
  Sha256 hash_;
  std::size_t in_frame_ = 0;
  std::size_t frame_ = 0;
  std::string differs_;
};

std::string compare_pack(const StartGroup& group, const std::vector<ReadStream>& layers) {
  PackComparison comparison(group);
  Bytes buffer(kPackFrameBytes);
  for (const auto& range : group.pack.ranges) {
    for (std::uint64_t done = 0; done < range.stream_range.length;) {
      const auto part = std::span(buffer).first(
          std::size_t(std::min<std::uint64_t>(buffer.size(), range.stream_range.length - done)));
      layers[range.layer].read(range.stream_range.offset + done, part);
      comparison.add(part);
      done += part.size();
    }
  }
  if (auto differs = comparison.finish(); !differs.empty()) return differs;
  for (const auto& literal : group.pack.literals) {
    const auto part = std::span(buffer).first(literal.bytes.size());
    layers[literal.layer].read(literal.stream_offset, part);
    if (!std::ranges::equal(part, literal.bytes))
      return fmt::format("bytes that come with the start-up pack of {} are not those of the layers", group.name);
  }
  return "";
}

std::string compare_packs(const LoadedIndex& index, const std::function<ReadStream(std::size_t layer)>& read) {
  std::vector<ReadStream> layers;
  for (const auto& digest : index.packs.layers)
    layers.push_back(
        read(std::size_t(std::ranges::find(index.maps, digest, [](const auto& map) { return map->layer_digest; }) -
                         index.maps.begin())));
  for (const auto& group : index.packs.groups)
    if (auto differs = compare_pack(group, layers); !differs.empty()) return differs;
  return "";
}

}  // namespace

std::string disprove_layer(const LayerMap& map, const ReadStream& read) {
  if (compare_layer(map, read).empty()) return "";
  compare_spans(map, read);
  return compare_layer(map, read);
}

std::string disprove_tree(const LoadedIndex& index, const oci::Image& image,
                          const std::function<ReadStream(std::size_t layer)>& read) {
  if (differs_from_tree(index, image, read).empty()) return "";
  for (std::size_t layer = 0; layer < index.maps.size(); ++layer) compare_spans(*index.maps[layer], read(layer));
  return differs_from_tree(index, image, read);
}

std::string disprove_packs(const LoadedIndex& index, const std::function<ReadStream(std::size_t layer)>& read) {
  if (compare_packs(index, read).empty()) return "";
  for (std::size_t layer = 0; layer < index.maps.size(); ++layer) compare_spans(*index.maps[layer], read(layer));
  return compare_packs(index, read);
}

bool must_be_equal(const LoadedIndex& index) { return index.blobs.tool == trust::this_tool(); }

}  // namespace varve::index
