#include "core/index/prefix_tree.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/index/merge/flat_tree.h"
#include "core/index/merge/merge_layers.h"
#include "core/index/this_index.h"

namespace varve::index {
namespace {

namespace fs = std::filesystem;

// What the tree is made of, so that images which share these layers share it, too. Not by whom: a daemon that follows
// another one must find the very tree that is mounted. Layers are added from the lowest on.
class PrefixName {
 public:
  void add(const Digest& diff_id, const LayerIndexBlobs& layer) {
    words_ +=
        fmt::format("\n{} {} {}", diff_id.to_string(), layer.map.digest.to_string(), layer.entries.digest.to_string());
  }
  std::string name() const { return digest_of(words_).hex(); }

 private:
  std::string words_ = "varve tree of layers";
};

// The ranges behind their digest: a place that a disk has changed would show other bytes.
void write_ranges(const fs::path& path, const RangesDevice& ranges) {
  const auto encoded = ranges.encode();
  AtomicFile file(path);
  file.write(digest_of(encoded).raw());
  file.write(encoded);
  file.commit();
}

RangesDevice read_ranges(const fs::path& path) {
  const auto bytes = read_file(path, kMaxRangesBytes + Digest::kBytes);
  const auto encoded = ByteView(bytes).subspan(std::min(bytes.size(), Digest::kBytes));
  if (!std::ranges::equal(digest_of(encoded).raw(), ByteView(bytes).first(bytes.size() - encoded.size())))
    fail<CorruptData>("{}: broken on disk", path.string());
  return RangesDevice::decode(encoded, path.string());
}

void open_tree(LoadedIndex& index) {
  index.tree_mapping = MappedFile::open(index.tree_file);
  index.tree = std::make_unique<ErofsReader>(index.tree_mapping.bytes(), index.tree_file.string());
}

// False if it is not here, or not as it was written.
bool open_kept(LoadedIndex& index, const fs::path& ranges_file, const oci::Image& image) {
  if (!fs::exists(index.tree_file)) return false;
  try {
    open_tree(index);
    if (!index.tree->is_intact()) fail<CorruptData>("{}: broken on disk", index.tree_file.string());
    index.ranges = read_ranges(ranges_file);
    check_devices(index, image);
    return true;
  } catch (const std::exception& error) {
    log::warn("merging again: {}", error.what());
    return false;
  }
}

void make_tree(LocalIndex& local, LoadedIndex& index, const fs::path& ranges_file, const oci::Image& image) {
  LayerMerger merger;
  std::vector<std::string> tags;
  std::vector<std::uint64_t> stream_bytes;
  for (std::size_t i = 0; i < index.maps.size(); ++i) {
    merger.add(read_layer_entries_of(local, index, image, i, &index.loaded_bytes));
    tags.push_back(image.config.diff_ids.at(i).hex());
    stream_bytes.push_back(index.maps[i]->stream_bytes);
  }
  const auto made = write_erofs(merger.finish(), tags, stream_bytes);
  ErofsReader(made.bytes, index.tree_file.string()).check();  // who wrote the entries may have lied about places
  write_ranges(ranges_file, made.ranges);
  AtomicFile file(index.tree_file);  // the last: it says that both are here
  file.write(made.bytes);
  file.commit();
  index.ranges = made.ranges;
  open_tree(index);
  check_devices(index, image);
}

}  // namespace

LayerPrefix load_prefix(LocalIndex& local, const oci::Image& image, const LoadedIndex& whole, std::size_t layers) {
  if (layers == 0 || layers >= whole.maps.size())
    fail<UsageError>("{}: the first {} of {} layers are no part of it", image.reference, layers, whole.maps.size());
  LayerPrefix prefix{.image = image, .index = {}};
  prefix.image.manifest.layers.resize(layers);
  prefix.image.config.diff_ids.resize(layers);
  auto& index = prefix.index;
  index.blobs = whole.blobs;
  index.blobs.layers.resize(layers);
  index.blobs.ranges.reset();
  index.blobs.profile.reset();
  index.blobs.start_packs.reset();
  index.blobs.seeds.reset();
  index.blobs.packs.clear();
  index.judgement = whole.judgement;
  index.source = whole.source;
  index.maps.assign(whole.maps.begin(), whole.maps.begin() + std::ptrdiff_t(layers));
  index.cold = whole.cold;
  PrefixName called;
  for (std::size_t i = 0; i < layers; ++i) called.add(prefix.image.config.diff_ids.at(i), index.blobs.layers[i]);
  const auto name = called.name();
  index.tree_file = local.trees_dir() / (name + ".erofs");
  const auto ranges_file = local.trees_dir() / (name + ".ranges");
  if (!open_kept(index, ranges_file, prefix.image)) make_tree(local, index, ranges_file, prefix.image);
  index.blobs.tree = {};
  index.blobs.tree.digest =
      digest_of(digest_of(index.tree_mapping.bytes()).to_string() + ' ' + digest_of(index.ranges.encode()).to_string());
  index.blobs.tree_bytes = index.tree_mapping.bytes().size();
  return prefix;
}

std::set<std::string> prefix_names(const oci::Image& image, const ImageIndexBlobs& index) {
  std::set<std::string> names;
  PrefixName called;
  for (std::size_t i = 0; i < index.layers.size(); ++i) {
    called.add(image.config.diff_ids.at(i), index.layers[i]);
    names.insert(called.name());
  }
  return names;
}

}  // namespace varve::index
