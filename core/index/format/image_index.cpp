#include "core/index/format/image_index.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/base/errors.h"
#include "core/base/files/mapped_file.h"
#include "core/base/log.h"
#include "core/base/text/strings.h"
#include "core/codec/span_decoder.h"
#include "core/codec/zstd_walker.h"
#include "core/index/format/tree_columns.h"
#include "core/oci/artifact.h"
#include "core/trust/tool_version.h"

namespace varve::index {
namespace {

// A tree that unpacks to more than this must not be more than so many times its blob: what we write stays far below.
constexpr std::uint64_t kUnquestionedTreeBytes = 256ull << 20;
constexpr std::uint64_t kMaxTreeRatio = 256;

oci::Descriptor named(const oci::Descriptor& descriptor, std::string_view media_type) {
  auto result = oci::bare(descriptor);
  result.media_type = media_type;
  return result;
}

void add_layer_blobs(std::vector<oci::Descriptor>& list, const LayerIndexBlobs& blobs) {
  const auto add = [&](const oci::Descriptor& descriptor, std::string_view media_type) {
    list.push_back(named(descriptor, media_type));
    list.back().annotations[std::string(kLayerAnnotation)] = blobs.layer_digest.to_string();
  };
  add(blobs.map, kLayerMapMediaType);
  if (blobs.windows) add(*blobs.windows, kWindowsMediaType);
  add(blobs.entries, kEntriesMediaType);
}

// The blobs of the layers that a manifest names, by layer digest.
class LayerCollector {
 public:
  explicit LayerCollector(std::string_view what) : what_(what) {}

  // False if the descriptor describes no layer.
  bool add(const oci::Descriptor& descriptor) {
    const bool is_map = descriptor.media_type == kLayerMapMediaType;
    const bool is_windows = descriptor.media_type == kWindowsMediaType;
    if (!is_map && !is_windows && descriptor.media_type != kEntriesMediaType) return false;
    const auto annotation = descriptor.annotations.find(std::string(kLayerAnnotation));
    if (annotation == descriptor.annotations.end())
      fail<CorruptData>("{}: {} does not say of which layer", what_, descriptor.digest.to_string());
    auto& slots = layers_[Digest::parse(annotation->second, what_)];
    auto& slot = is_map ? slots.map : is_windows ? slots.windows : slots.entries;
    if (slot)
      fail<CorruptData>("{}: layer {} has two blobs of type {}", what_, annotation->second, descriptor.media_type);
    slot = oci::bare(descriptor);
    return true;
  }

  LayerIndexBlobs take(const Digest& layer_digest) {
    taken_.insert(layer_digest);
    const auto slots = layers_.find(layer_digest);
    if (slots == layers_.end() || !slots->second.map || !slots->second.entries)
      fail<CorruptData>("{}: layer {} lacks its map or its entries", what_, layer_digest.to_string());
    return {.layer_digest = layer_digest,
            .map = *slots->second.map,
            .windows = slots->second.windows,
            .entries = *slots->second.entries};
  }

  void check_all_taken() const {
    for (const auto& [digest, slots] : layers_) {
      if (!taken_.contains(digest)) fail<CorruptData>("{}: layer {} is none of the image's", what_, digest.to_string());
    }
  }

 private:
  struct Slots {
    std::optional<oci::Descriptor> map;
    std::optional<oci::Descriptor> windows;
    std::optional<oci::Descriptor> entries;
  };
  std::string_view what_;
  std::map<Digest, Slots> layers_;
  std::set<Digest> taken_;
};

oci::Manifest parse_artifact(const oci::Document& document, std::string_view artifact_type, const Digest& subject,
                             std::string_view what) {
  auto manifest = oci::Manifest::parse(document.bytes, document.descriptor.media_type, what);
  if (manifest.artifact_type != artifact_type)
    fail<CorruptData>("{}: artifact type \"{:.100}\" is not {}", what, manifest.artifact_type, artifact_type);
  if (!manifest.subject || manifest.subject->digest != subject)
    fail<CorruptData>("{}: is about {}, not {}", what,
                      manifest.subject ? manifest.subject->digest.to_string() : "nothing", subject.to_string());
  return manifest;
}

std::uint64_t parse_tree_bytes(const oci::Descriptor& tree, std::string_view what) {
  const auto annotation = tree.annotations.find(std::string(kUncompressedBytesAnnotation));
  if (annotation == tree.annotations.end()) fail<CorruptData>("{}: the tree's size is missing", what);
  const auto& text = annotation->second;
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end != text.data() + text.size() || bytes % kTreeBlockBytes != 0 || bytes == 0 ||
      bytes > kMaxTreeBytes)
    fail<CorruptData>("{}: \"{:.40}\" cannot be the tree's size", what, text);
  if (bytes > kUnquestionedTreeBytes && bytes / kMaxTreeRatio > tree.size)
    fail<CorruptData>("{}: {} bytes cannot hold a tree of {}", what, tree.size, bytes);
  return bytes;
}

std::string tool_of(const oci::Manifest& manifest) {
  const auto tool = manifest.annotations.find(std::string(kToolAnnotation));
  return tool == manifest.annotations.end() ? "" : tool->second;
}

std::uint64_t generation_of(const oci::Manifest& manifest, std::string_view what) {
  const auto annotation = manifest.annotations.find(std::string(kGenerationAnnotation));
  if (annotation == manifest.annotations.end()) return 0;
  const auto& text = annotation->second;
  std::uint64_t generation = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), generation);
  // Only as it is written, so that what was read is written the same again.
  if (error != std::errc() || generation == 0 || generation > kMaxGeneration || text != std::to_string(generation))
    fail<CorruptData>("{}: \"{:.40}\" cannot be its generation", what, text);
  return generation;
}

// By what of two indexes one is taken; the greatest first.
struct Rank {
  bool known = true;  // not of a tool later than this one
  std::vector<std::uint64_t> version;
  std::uint64_t generation = 0;

  auto operator<=>(const Rank&) const = default;
};

Rank rank_of(std::string_view tool, std::uint64_t generation) {
  return {.known = !trust::is_later_than_this(tool), .version = trust::tool_version(tool), .generation = generation};
}

Rank claimed_rank(const std::map<std::string, std::string>& annotations) {
  const auto text = [&](std::string_view name) {
    const auto found = annotations.find(std::string(name));
    return found == annotations.end() ? std::string_view() : std::string_view(found->second);
  };
  std::uint64_t generation = 0;
  const auto digits = text(kGenerationAnnotation);
  if (std::from_chars(digits.data(), digits.data() + digits.size(), generation).ec != std::errc() ||
      generation > kMaxGeneration)
    generation = 0;
  return rank_of(text(kToolAnnotation), generation);
}

// Calls `use` and says of what cannot be used why it is passed over.
template <typename Use>
void or_pass_over(oci::Repository& repository, const Use& use) {
  try {
    use();
  } catch (const CorruptData& error) {
    log::warn("{}: passing over an index: {}", repository.name(), error.what());
  } catch (const Unsupported& error) {
    log::warn("{}: passing over an index: {}", repository.name(), error.what());
  } catch (const NotFound& error) {
    log::warn("{}: passing over an index: {}", repository.name(), error.what());
  }
}

// None of what is not as hint_of() writes it.
std::vector<oci::Descriptor> hinted_blobs(const oci::Descriptor& listed) {
  const auto annotation = listed.annotations.find(std::string(kFirstLoadAnnotation));
  if (annotation == listed.annotations.end()) return {};
  std::vector<oci::Descriptor> blobs;
  for (const auto& word : split_words(annotation->second, " ")) {
    const auto colon = word.find(':');
    const auto digest = Digest::try_parse(fmt::format("sha256:{}", word.substr(0, colon)));
    std::uint64_t size = 0;
    const auto* const end = word.data() + word.size();
    if (!digest || colon == std::string::npos || blobs.size() == kMaxHintedBlobs) return {};
    if (const auto read = std::from_chars(word.data() + colon + 1, end, size);
        read.ec != std::errc() || read.ptr != end)
      return {};
    auto& blob = blobs.emplace_back();
    blob.digest = *digest;
    blob.size = size;
  }
  return blobs;
}

std::string hint_of(const std::vector<oci::Descriptor>& blobs) {
  std::string text;
  if (blobs.size() > kMaxHintedBlobs) return text;
  for (const auto& blob : blobs) text += fmt::format("{}{}:{}", text.empty() ? "" : " ", blob.digest.hex(), blob.size);
  return text;
}

// The artifacts that are listed for `subject`, best first, until `visit` is content. What the list does not say of them
// is read from their manifests. One that cannot be parsed is passed over; what `visit` throws reaches the caller.
template <typename Parse, typename Visit>
void visit_ranked(oci::Repository& repository, const Digest& subject, std::vector<oci::Descriptor> listed,
                  const Parse& parse, const Visit& visit, const OnHinted& hinted = {}) {
  struct Ranked {
    Rank rank;
    oci::Descriptor descriptor;
    std::optional<oci::Document> document;
  };
  std::vector<Ranked> all;
  for (auto& descriptor : listed)
    all.push_back({.rank = claimed_rank(descriptor.annotations), .descriptor = std::move(descriptor), .document = {}});
  const auto better = [](const Ranked& a, const Ranked& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.descriptor.digest < b.descriptor.digest;
  };
  std::ranges::sort(all, better);
  if (all.size() > kMaxCandidates) {
    log::warn("{}: {} indexes are listed for {}; {} of them are looked at", repository.name(), all.size(),
              subject.to_string(), kMaxCandidates);
    all.resize(kMaxCandidates);
  }
  for (auto& one : all) {
    if (all.size() == 1 || one.descriptor.annotations.contains(std::string(kToolAnnotation))) continue;
    or_pass_over(repository, [&] {
      one.document = repository.manifest(one.descriptor.digest.to_string());
      one.rank = claimed_rank(oci::Manifest::parse(one.document->bytes, one.document->descriptor.media_type,
                                                   "index " + one.descriptor.digest.to_string())
                                  .annotations);
    });
  }
  std::ranges::sort(all, better);
  if (hinted && !all.empty())
    if (auto blobs = hinted_blobs(all.front().descriptor); !blobs.empty()) hinted(std::move(blobs));
  for (auto& one : all) {
    std::optional<decltype(parse(oci::Document()))> found;
    or_pass_over(repository, [&] {
      found = parse(one.document ? std::move(*one.document) : repository.manifest(one.descriptor.digest.to_string()));
    });
    if (found && visit(std::move(*found))) return;
  }
}

std::uint64_t bytes_of(const std::map<Digest, std::uint64_t>& blobs) {
  std::uint64_t bytes = 0;
  for (const auto& [digest, size] : blobs) bytes += size;
  return bytes;
}

}  // namespace

std::uint64_t ImageIndexBlobs::index_bytes() const {
  std::map<Digest, std::uint64_t> blobs{{manifest.digest, manifest.size}, {tree.digest, tree.size}};
  if (ranges) blobs[ranges->digest] = ranges->size;
  if (cold) blobs[cold->digest] = cold->size;
  if (profile) blobs[profile->digest] = profile->size;
  if (start_packs) blobs[start_packs->digest] = start_packs->size;
  for (const auto& pack : packs) blobs[pack.digest] = pack.size;
  if (seeds) blobs[seeds->digest] = seeds->size;
  for (const auto& layer : layers) {
    blobs[layer.map.digest] = layer.map.size;
    blobs[layer.entries.digest] = layer.entries.size;
    if (layer.windows) blobs[layer.windows->digest] = layer.windows->size;
  }
  return bytes_of(blobs);
}

std::vector<oci::Descriptor> ImageIndexBlobs::first_load() const {
  std::vector<oci::Descriptor> blobs;
  std::set<Digest> seen;  // an image may name a layer twice
  const auto add = [&](const std::optional<oci::Descriptor>& blob) {
    if (blob && seen.insert(blob->digest).second) blobs.push_back(*blob);
  };
  add(tree);
  add(ranges);
  add(cold);
  add(profile);
  add(start_packs);
  for (const auto& layer : layers) add(layer.map);
  return blobs;
}

std::uint64_t ImageIndexBlobs::first_load_bytes() const {
  auto bytes = manifest.size;
  for (const auto& blob : first_load()) bytes += blob.size;
  return bytes;
}

namespace {

class TreeFile final : public codec::ZstdListener {
 public:
  TreeFile(std::uint64_t bytes, std::string_view what, AtomicFile& file) : bytes_(bytes), what_(what), file_(file) {}

  void on_stream_bytes(ByteView bytes) override {
    if (bytes.size() > bytes_ - written_) fail<CorruptData>("{}: unpacks to more than {} bytes", what_, bytes_);
    file_.write(bytes);
    written_ += bytes.size();
  }
  void on_frame(std::uint64_t, std::uint64_t) override {}
  void check_size() const {
    if (written_ != bytes_) fail<CorruptData>("{}: unpacks to {} bytes, expected {}", what_, written_, bytes_);
  }

 private:
  const std::uint64_t bytes_;
  const std::string_view what_;
  AtomicFile& file_;
  std::uint64_t written_ = 0;
};

}  // namespace

Bytes pack_tree(const ErofsImage& image) {
  return codec::compress_zstd(encode_tree_columns(image.bytes), kIndexZstdLevel);
}

Bytes pack_ranges(const RangesDevice& ranges) { return codec::compress_zstd(ranges.encode(), kIndexZstdLevel); }

Bytes pack_start_packs(const StartPacks& packs) { return codec::compress_zstd(packs.encode(), kIndexZstdLevel); }

bool is_tree(std::string_view media_type) { return media_type == kTreeMediaType || media_type == kPlainTreeMediaType; }

void unpack_tree(std::string_view media_type, ByteView blob, std::uint64_t tree_bytes, std::string_view what,
                 AtomicFile& file) {
  const auto open = [&] { return MappedFile::open(fmt::format("/proc/self/fd/{}", file.fd())); };
  if (media_type == kPlainTreeMediaType) {
    TreeFile out(tree_bytes, what, file);
    codec::ZstdWalker walker(std::string(what), out);
    walker.feed(blob);
    walker.finish();
    out.check_size();
    const auto tree = open();
    ErofsReader(tree.bytes(), std::string(what)).check();
    return;
  }
  const auto columns = codec::decompress_zstd(blob, kMaxTreeColumnsBytes, what);
  const auto with_attributes =
      decode_tree_columns(columns, tree_bytes, what,
                          [&](std::uint64_t offset, ByteView piece) { pwrite_all(file.fd(), offset, piece, what); });
  const auto tree = open();
  ErofsReader(tree.bytes(), std::string(what)).check_rest(with_attributes);
}

RangesDevice unpack_ranges(ByteView blob, std::string_view what) {
  return RangesDevice::decode(codec::decompress_zstd(blob, kMaxRangesBytes, what), what);
}

StartPacks unpack_start_packs(std::string_view media_type, ByteView blob, std::string_view what) {
  if (media_type == kPlainStartPacksMediaType) return StartPacks::decode(blob, what);
  return StartPacks::decode(codec::decompress_zstd(blob, kMaxStartPacksBlobBytes, what), what);
}

oci::ArtifactManifest make_index_manifest(const oci::Image& image, const ImageIndexBlobs& blobs) {
  oci::ArtifactManifest manifest;
  manifest.artifact_type = kIndexArtifactType;
  manifest.subject = oci::bare(image.document.descriptor);
  manifest.layers.push_back(
      named(blobs.tree, blobs.tree.media_type == kPlainTreeMediaType ? kPlainTreeMediaType : kTreeMediaType));
  manifest.layers.back().annotations[std::string(kUncompressedBytesAnnotation)] = std::to_string(blobs.tree_bytes);
  if (blobs.ranges) manifest.layers.push_back(named(*blobs.ranges, kRangesMediaType));
  if (blobs.cold) manifest.layers.push_back(named(*blobs.cold, kColdMediaType));
  if (blobs.profile) manifest.layers.push_back(named(*blobs.profile, kProfileMediaType));
  if (blobs.start_packs) manifest.layers.push_back(oci::bare(*blobs.start_packs));
  for (const auto& pack : blobs.packs) manifest.layers.push_back(named(pack, kPackMediaType));
  if (blobs.seeds) manifest.layers.push_back(named(*blobs.seeds, kSeedsMediaType));
  std::set<Digest> named_layers;
  for (const auto& layer : blobs.layers) {
    if (named_layers.insert(layer.layer_digest).second) add_layer_blobs(manifest.layers, layer);
  }
  if (blobs.generation != 0)
    manifest.annotations[std::string(kGenerationAnnotation)] = std::to_string(blobs.generation);
  if (!blobs.tool.empty()) manifest.annotations[std::string(kToolAnnotation)] = blobs.tool;
  if (auto hint = blobs.hint ? *blobs.hint : hint_of(blobs.first_load()); !hint.empty())
    manifest.annotations[std::string(kFirstLoadAnnotation)] = std::move(hint);
  return manifest;
}

oci::ArtifactManifest make_layer_manifest(const oci::Descriptor& layer, const LayerIndexBlobs& blobs) {
  oci::ArtifactManifest manifest;
  manifest.artifact_type = kLayerArtifactType;
  manifest.subject = oci::bare(layer);
  add_layer_blobs(manifest.layers, blobs);
  if (!blobs.tool.empty()) manifest.annotations[std::string(kToolAnnotation)] = blobs.tool;
  return manifest;
}

ImageIndexBlobs parse_index_manifest(const oci::Document& document, const oci::Image& image) {
  const auto what = "index " + document.descriptor.digest.to_string();
  const auto manifest = parse_artifact(document, kIndexArtifactType, image.digest(), what);
  ImageIndexBlobs blobs;
  blobs.manifest = oci::bare(document.descriptor);
  blobs.image_digest = image.digest();
  LayerCollector layers(what);
  bool has_tree = false;
  for (const auto& descriptor : manifest.layers) {
    if (is_tree(descriptor.media_type)) {
      if (has_tree) fail<CorruptData>("{}: names two trees", what);
      has_tree = true;
      blobs.tree = oci::bare(descriptor);
      blobs.tree_bytes = parse_tree_bytes(descriptor, what);
    } else if (descriptor.media_type == kRangesMediaType) {
      if (blobs.ranges) fail<CorruptData>("{}: names two range lists", what);
      blobs.ranges = oci::bare(descriptor);
    } else if (descriptor.media_type == kColdMediaType) {
      if (blobs.cold) fail<CorruptData>("{}: names two lists of cold ranges", what);
      blobs.cold = oci::bare(descriptor);
    } else if (descriptor.media_type == kProfileMediaType) {
      if (blobs.profile) fail<CorruptData>("{}: names two profiles", what);
      blobs.profile = oci::bare(descriptor);
    } else if (descriptor.media_type == kStartPacksMediaType || descriptor.media_type == kPlainStartPacksMediaType) {
      if (blobs.start_packs) fail<CorruptData>("{}: names two lists of start-up packs", what);
      blobs.start_packs = oci::bare(descriptor);
    } else if (descriptor.media_type == kPackMediaType) {
      blobs.packs.push_back(oci::bare(descriptor));
    } else if (descriptor.media_type == kSeedsMediaType) {
      if (blobs.seeds) fail<CorruptData>("{}: names two lists of seeds", what);
      blobs.seeds = oci::bare(descriptor);
    } else {
      layers.add(descriptor);  // what is neither a layer's nor ours is of later versions and not needed
    }
  }
  if (!has_tree) fail<CorruptData>("{}: names no tree", what);
  for (const auto& layer : image.manifest.layers) blobs.layers.push_back(layers.take(layer.digest));
  layers.check_all_taken();
  blobs.tool = tool_of(manifest);
  const auto hint = manifest.annotations.find(std::string(kFirstLoadAnnotation));
  blobs.hint = hint == manifest.annotations.end() ? "" : hint->second;
  blobs.generation = generation_of(manifest, what);
  return blobs;
}

LayerIndexBlobs parse_layer_manifest(const oci::Document& document, const Digest& layer_digest) {
  const auto what = "layer index " + document.descriptor.digest.to_string();
  const auto manifest = parse_artifact(document, kLayerArtifactType, layer_digest, what);
  LayerCollector layers(what);
  for (const auto& descriptor : manifest.layers) layers.add(descriptor);
  auto blobs = layers.take(layer_digest);
  layers.check_all_taken();
  blobs.tool = tool_of(manifest);
  return blobs;
}

bool is_preferred(const ImageIndexBlobs& index, const ImageIndexBlobs& other) {
  const auto rank = rank_of(index.tool, index.generation);
  const auto others = rank_of(other.tool, other.generation);
  return rank != others ? rank > others : index.manifest.digest < other.manifest.digest;
}

bool same_content(const ImageIndexBlobs& index, const ImageIndexBlobs& other) {
  const auto digest = [](const std::optional<oci::Descriptor>& blob) { return blob ? blob->digest : Digest(); };
  return index.tree.digest == other.tree.digest && digest(index.ranges) == digest(other.ranges) &&
         digest(index.start_packs) == digest(other.start_packs) && digest(index.seeds) == digest(other.seeds) &&
         std::ranges::equal(index.layers, other.layers, [&](const LayerIndexBlobs& a, const LayerIndexBlobs& b) {
           return a.map.digest == b.map.digest && digest(a.windows) == digest(b.windows) &&
                  a.entries.digest == b.entries.digest;
         });
}

void visit_indexes(oci::Repository& repository, const oci::Image& image, const std::function<bool(FoundIndex)>& visit,
                   const OnHinted& hinted) {
  const auto parse = [&](oci::Document document) {
    auto blobs = parse_index_manifest(document, image);
    return FoundIndex{.blobs = std::move(blobs), .document = std::move(document)};
  };
  visit_ranked(repository, image.digest(), repository.referrers(image.digest(), kIndexArtifactType), parse, visit,
               hinted);
}

void visit_layer_indexes(oci::Repository& repository, const Digest& layer_digest, const Digest* image,
                         const std::function<bool(FoundLayerIndex)>& visit) {
  const auto parse = [&](oci::Document document) {
    auto blobs = parse_layer_manifest(document, layer_digest);
    return FoundLayerIndex{.blobs = std::move(blobs), .document = std::move(document)};
  };
  auto listed = image == nullptr ? repository.referrers(layer_digest, kLayerArtifactType)
                                 : repository.part_referrers(layer_digest, *image, kLayerArtifactType);
  visit_ranked(repository, layer_digest, std::move(listed), parse, visit);
}

std::optional<ImageIndexBlobs> find_index(oci::Repository& repository, const oci::Image& image) {
  std::optional<ImageIndexBlobs> first;
  visit_indexes(repository, image, [&](FoundIndex found) {
    first = std::move(found.blobs);
    return true;
  });
  return first;
}

std::optional<LayerIndexBlobs> find_layer_index(oci::Repository& repository, const Digest& layer_digest) {
  std::optional<LayerIndexBlobs> first;
  visit_layer_indexes(repository, layer_digest, nullptr, [&](FoundLayerIndex found) {
    first = std::move(found.blobs);
    return true;
  });
  return first;
}

}  // namespace varve::index
