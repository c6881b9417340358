#include "core/index/local_index.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/private_folder.h"
#include "core/base/log.h"
#include "core/base/threads/errands.h"
#include "core/base/threads/parallel.h"
#include "core/index/index_sources.h"
#include "core/index/this_index.h"

namespace varve::index {
namespace {

constexpr std::string_view kLayoutFolder = "index";
constexpr std::string_view kTreesFolder = "trees";
constexpr std::string_view kOriginsFolder = "index-origin";
constexpr std::uint64_t kMaxTreeBlobBytes = 4ull << 30;
constexpr std::size_t kBlobsAtOnce = 16;  // few images have more layers
// The tree, of which most of a first load is, takes the connection that is open: to make another costs a round trip or
// three, which the manifest has time for while the tree comes.
constexpr std::chrono::milliseconds kAfterTree{1};

std::filesystem::path blob_path(const std::filesystem::path& root, const Digest& digest) {
  return root / kLayoutFolder / "blobs" / "sha256" / digest.hex();
}

std::string what_of(const oci::Descriptor& blob) { return "index blob " + blob.digest.to_string(); }

// Its digest is looked at each time: what a disk has broken must not be shown.
bool is_good_tree(const std::filesystem::path& path, std::uint64_t tree_bytes) {
  std::error_code absent;
  if (std::filesystem::file_size(path, absent) != tree_bytes || absent) return false;
  try {
    const auto mapping = MappedFile::open(path);
    if (ErofsReader(mapping.bytes(), path.string()).is_intact()) return true;
    log::warn("{}: broken on disk; unpacking it again", path.string());
  } catch (const CorruptData& error) {
    log::warn("unpacking again: {}", error.what());
  }
  return false;
}

std::shared_ptr<const LayerMap> load_map(LocalIndex& local, const oci::Image& image, const LayerIndexBlobs& blobs,
                                         oci::Repository& source, std::size_t layer) {
  const auto& descriptor = image.manifest.layers[layer];
  const auto what = what_of(blobs.map);
  auto map = read_map(local, blobs.map, source);
  if (map.layer_digest != descriptor.digest || map.diff_id != image.config.diff_ids.at(layer) ||
      map.compressed_bytes != descriptor.size)
    fail<CorruptData>("{}: is not the map of layer {} as the image names it", what, descriptor.digest.to_string());
  const auto windows = blobs.windows ? blobs.windows->size : 0;
  const auto windows_digest = blobs.windows ? blobs.windows->digest : Digest();
  if (map.windows_bytes != windows || map.windows_digest != windows_digest)
    fail<CorruptData>("{}: the windows of layer {} are not those that the index names", what,
                      descriptor.digest.to_string());
  return std::make_shared<const LayerMap>(std::move(map));
}

std::string said_of(const FoundIndex& index, const trust::Judgement& judgement) {
  return fmt::format("index {}: {}", index.document.descriptor.digest.to_string(), judgement.refusal);
}

// The preferred one of those that a source offers and that are trusted. Beside the image, one with the content of what
// is here is as good as that.
std::optional<TrustedIndex> find_trusted_there(LocalIndex& local, const oci::Image& image, const IndexSource& source,
                                               const std::optional<TrustedIndex>& here,
                                               std::shared_ptr<EarlyBlobs>& early, std::vector<std::string>& refusals) {
  std::optional<TrustedIndex> best;
  const auto begin_early = [&](std::vector<oci::Descriptor> first_load) {
    if (here || source.repository->is_local()) return;
    early = std::make_shared<EarlyBlobs>(source.repository, std::move(first_load));
    std::this_thread::sleep_for(kAfterTree);
  };
  const auto request = trust::Request::of(image);
  const bool is_beside = source.index_from.empty();
  const auto visit = [&](FoundIndex found) {
    auto judgement = local.judge(image, found, *source.repository, is_beside, source.index_from);
    if (is_beside && here && !judgement.vouched && local.may_take_notes(image, found) &&
        same_content(found.blobs, here->found.blobs))
      judgement = here->judgement;
    if (!judgement.trusted) {
      refusals.push_back(said_of(found, judgement));
      return false;
    }
    if (!best || (judgement.vouched && !best->judgement.vouched))
      best = TrustedIndex{.found = std::move(found), .judgement = std::move(judgement)};
    // Where somebody's signature counts, all are looked at until one is signed.
    return best->judgement.vouched || !local.judge().has_keys(request);
  };
  visit_indexes(*source.repository, image, visit, begin_early);
  return best;
}

struct Offer {
  TrustedIndex index;
  std::shared_ptr<EarlyBlobs> early;
  std::shared_ptr<oci::Repository> source;
};

void warn_of(const oci::Image& image, const std::exception_ptr& trouble) {
  try {
    std::rethrow_exception(trouble);
  } catch (const std::exception& error) {
    log::warn("{}: could not be asked for a newer index: {}", image.repository->name(), error.what());
  }
}

// Of the first source that has one, unless a later one has one that somebody vouches for. Throws what went wrong if
// there is none.
std::optional<Offer> find_offer(LocalIndex& local, const oci::Image& image, const std::optional<TrustedIndex>& here,
                                std::vector<std::string>& refusals) {
  std::optional<Offer> best;
  const bool has_keys = local.judge().has_keys(trust::Request::of(image));
  const auto troubles = visit_index_sources(image, [&](const IndexSource& source) {
    std::shared_ptr<EarlyBlobs> early;
    auto found = find_trusted_there(local, image, source, here, early, refusals);
    if (found && (!best || (found->judgement.vouched && !best->index.judgement.vouched)))
      best = Offer{.index = std::move(*found), .early = std::move(early), .source = source.repository};
    return best && (best->index.judgement.vouched || !has_keys);
  });
  if (!best && !troubles.empty()) std::rethrow_exception(troubles.front());
  for (const auto& trouble : troubles) warn_of(image, trouble);
  return best;
}

bool is_taken_before(const TrustedIndex& index, const TrustedIndex& other) {
  if (index.judgement.vouched != other.judgement.vouched) return index.judgement.vouched;
  return is_preferred(index.found.blobs, other.found.blobs);
}

std::optional<ChosenIndex> find_choice(LocalIndex& local, const oci::Image& image, IndexPlace place,
                                       std::vector<std::string>& refusals) {
  auto here = local.find_trusted(image, refusals);
  if (here && place == IndexPlace::kHere)
    return ChosenIndex{.index = std::move(*here), .source = nullptr, .other_notes_only = true};
  try {
    auto offer = find_offer(local, image, here, refusals);
    if (offer && (!here || is_taken_before(offer->index, *here))) {
      const auto& blobs = offer->index.found.blobs;
      const bool is_here = here && blobs.manifest.digest == here->found.blobs.manifest.digest;
      const bool other_notes_only = here && same_content(blobs, here->found.blobs);
      return ChosenIndex{.index = std::move(offer->index),
                         .early = std::move(offer->early),
                         .source = is_here ? nullptr : std::move(offer->source),
                         .other_notes_only = other_notes_only};
    }
  } catch (const std::exception&) {
    if (!here) throw;
    warn_of(image, std::current_exception());
  }
  if (!here) return std::nullopt;
  return ChosenIndex{.index = std::move(*here), .source = nullptr, .other_notes_only = true};
}

// What is only offered is believed as first seen; whoever looks at the log learns when that changes.
void note_use(LocalIndex& local, const oci::Image& image, const Digest& index, bool other_notes_only) {
  using First = trust::OriginRecords::First;
  const auto request = trust::Request::of(image);
  const auto first = local.origins().first_used(request.repository, request.image);
  if (first == index) return;
  if (first && !other_notes_only)
    log::warn("{}: the index of image {} was {} and is now {}; no key that counts has signed it", request.repository,
              request.image.to_string(), first->to_string(), index.to_string());
  local.origins().note_used(request.repository, request.image, index,
                            local.judge().pins(request) ? First::kToDisk : First::kLate);
}

}  // namespace

void check_devices(const LoadedIndex& index, const oci::Image& image) {
  const auto what = what_of(index.blobs.tree);
  const auto layers = image.manifest.layers.size();
  const auto& tree = *index.tree;
  if (tree.device_count() != layers + (index.ranges.bytes != 0))
    fail<CorruptData>("{}: {} devices for {} layers", what, tree.device_count(), layers);
  const auto check = [&](std::uint32_t device, const std::string& tag, std::uint64_t bytes) {
    if (tree.device_tag(device) != tag ||
        tree.device_bytes(device) != (bytes + kTreeBlockBytes - 1) / kTreeBlockBytes * kTreeBlockBytes)
      fail<CorruptData>("{}: device {} is not {} of {} bytes", what, device, tag, bytes);
  };
  for (std::size_t layer = 0; layer < layers; ++layer)
    check(std::uint32_t(layer + 1), image.config.diff_ids[layer].hex(), index.maps[layer]->stream_bytes);
  if (index.ranges.bytes != 0) check(std::uint32_t(layers + 1), "ranges", index.ranges.bytes);
  for (const auto& range : index.ranges.ranges) {
    if (range.layer >= layers ||
        !ByteRange{range.stream_offset, range.length}.fits_in(index.maps[range.layer]->stream_bytes))
      fail<CorruptData>("{}: a range of {} bytes lies outside its layer", what_of(*index.blobs.ranges), range.length);
  }
}

// What is to be listed, by its image.
struct LocalIndex::Listing {
  explicit Listing(std::chrono::milliseconds rest) : errands(rest, std::numeric_limits<std::size_t>::max()) {}
  ~Listing() { errands.wait(); }

  void begin(const Digest& image) {
    const std::lock_guard guard(mutex);
    images.insert(image);
  }
  void end(const Digest& image) {
    const std::lock_guard guard(mutex);
    images.erase(images.find(image));
    ended.notify_all();
  }
  void wait_for(const Digest& image) {
    std::unique_lock lock(mutex);
    if (!images.contains(image)) return;
    errands.hurry();
    ended.wait(lock, [&] { return !images.contains(image); });
  }

  std::mutex mutex;
  std::condition_variable ended;
  std::multiset<Digest> images;
  Errands errands;
};

LocalIndex::LocalIndex(std::filesystem::path root, const trust::TrustSettings& settings,
                       std::chrono::milliseconds rest_before_listing)
    : root_(std::move(root)), listing_(std::make_shared<Listing>(rest_before_listing)) {
  make_private_folder(root_ / kTreesFolder);
  make_private_folder(root_ / kLayoutFolder);
  layout_ = oci::create_layout(root_ / kLayoutFolder, std::make_shared<LateSync>());
  origins_ = std::make_shared<trust::OriginRecords>(root_ / kOriginsFolder);
  judge_ = std::make_shared<const trust::Judge>(settings, trust::make_signature_checker(settings));
}

oci::Repository& LocalIndex::repository() { return *layout_; }

void LocalIndex::list_later(const Digest& image, std::function<void(oci::Repository& repository)> list) {
  listing_->begin(image);
  const auto list_now = [image, list = std::move(list), layout = layout_,
                         listing = listing_.get()](const std::stop_token&) {
    try {
      list(*layout);
    } catch (const std::exception& error) {
      log::warn("image {}: what is here of it is not listed for when its registry is away: {}", image.to_string(),
                error.what());
    }
    listing->end(image);
  };
  try {
    listing_->errands.add(list_now);
  } catch (const std::system_error& error) {  // no thread can be had
    log::warn("image {}: listed at once: {}", image.to_string(), error.what());
    list_now({});
  }
}

void LocalIndex::wait_until_listed(const Digest& image) const { listing_->wait_for(image); }

void LocalIndex::wait_until_listed() const { listing_->errands.wait(); }

trust::Judgement LocalIndex::judge(const oci::Image& image, const FoundIndex& index, oci::Repository& place,
                                   bool offered_now, std::string index_from) const {
  const auto& digest = index.document.descriptor.digest;
  const auto request = trust::Request::of(image);
  auto origin = origins_->of(digest);
  // A proof looks at what an index says of its own layers, not of an earlier version's.
  if (index.blobs.seeds) origin.proved = false;
  if (index_from.empty())
    for (const auto& name : index_from_names(image))
      if (origin.repositories.contains(name)) index_from = name;
  return judge_->judge(request,
                       {.manifest = index.document,
                        .tool = index.blobs.tool,
                        .origin = origin,
                        .offered_now = offered_now,
                        .index_from = std::move(index_from),
                        .place = &place,
                        .kept = layout_.get()},
                       origins_->first_used(request.repository, request.image));
}

bool LocalIndex::may_take_notes(const oci::Image& image, const FoundIndex& index) const {
  const auto& digest = index.document.descriptor.digest;
  return judge_->takes_notes_of_others(trust::Request::of(image)) && !judge_->is_denied(digest) &&
         origins_->of(digest).refuted.empty();
}

std::optional<TrustedIndex> LocalIndex::find_trusted(const oci::Image& image, std::vector<std::string>& refusals) {
  wait_until_listed(image.digest());
  std::vector<TrustedIndex> all;  // the preferred first
  visit_indexes(*layout_, image, [&](FoundIndex found) {
    auto judgement = judge(image, found, *layout_, false);
    all.push_back({.found = std::move(found), .judgement = std::move(judgement)});
    return all.size() == 1 && all.front().judgement.vouched;
  });
  // With the content of one that is vouched for, others' notes are as good.
  const auto vouched = [](const TrustedIndex& index) { return index.judgement.vouched; };
  const auto as_good = [&](const TrustedIndex& index) {
    return std::ranges::find_if(all, [&](const TrustedIndex& other) {
      return vouched(other) && same_content(other.found.blobs, index.found.blobs);
    });
  };
  for (auto& index : all) {
    if (vouched(index) || !may_take_notes(image, index.found)) continue;
    if (const auto other = as_good(index); other != all.end()) index.judgement = other->judgement;
  }
  auto best = std::ranges::find_if(all, vouched);
  if (best == all.end())
    best = std::ranges::find_if(all, [](const TrustedIndex& index) { return index.judgement.trusted; });
  if (best != all.end()) return std::move(*best);
  for (const auto& index : all) refusals.push_back(said_of(index.found, index.judgement));
  return std::nullopt;
}

std::optional<ImageIndexBlobs> LocalIndex::find_index(const oci::Image& image) {
  std::vector<std::string> refusals;
  auto index = find_trusted(image, refusals);
  if (!index) return std::nullopt;
  return std::move(index->found.blobs);
}

std::optional<LayerIndexBlobs> LocalIndex::find_layer_index(const Digest& layer_digest) {
  return index::find_layer_index(*layout_, layer_digest);
}

std::filesystem::path LocalIndex::tree_file(const ImageIndexBlobs& index, oci::Repository& source) {
  const auto path = root_ / kTreesFolder / (index.tree.digest.hex() + ".erofs");
  if (is_good_tree(path, index.tree_bytes)) return path;
  const auto packed = blob(index.tree, source, kMaxTreeBlobBytes);
  AtomicFile file(path);
  unpack_tree(index.tree.media_type, packed, index.tree_bytes, what_of(index.tree), file);
  file.commit(*trees_);
  return path;
}

std::filesystem::path LocalIndex::layout_dir() const { return root_ / kLayoutFolder; }

std::filesystem::path LocalIndex::trees_dir() const { return root_ / kTreesFolder; }

std::shared_ptr<oci::Repository> LocalIndex::holder_of(const std::optional<oci::Descriptor>& blob,
                                                       const std::shared_ptr<oci::Repository>& source) const {
  return blob && layout_->has_blob(*blob) ? layout_ : source;
}

LayerMap read_map(LocalIndex& local, const oci::Descriptor& blob, oci::Repository& source) {
  return LayerMap::decode(local.blob(blob, source, kMaxMapBlobBytes), what_of(blob));
}

Bytes LocalIndex::blob(const oci::Descriptor& blob, oci::Repository& source, std::uint64_t limit_bytes) {
  if (layout_->has_blob(blob)) {
    try {
      return oci::read_whole_blob(*layout_, blob, limit_bytes);
    } catch (const CorruptData& error) {
      // The disk lied; a blob of that digest must go before a good one can take its place.
      log::warn("fetching again: {}", error.what());
      std::filesystem::remove(blob_path(root_, blob.digest));
    }
  }
  auto bytes = oci::read_whole_blob(source, blob, limit_bytes);
  oci::put_bytes(*layout_, blob, bytes);
  return bytes;
}

namespace {

// Who serves what is not here of an index that is: the image's own repository unless it came from elsewhere.
std::shared_ptr<oci::Repository> source_of_kept(LocalIndex& local, const oci::Image& image,
                                                const Digest& index_manifest) {
  const auto names = local.origins().of(index_manifest).repositories;
  if (names.contains(image.repository->name())) return image.repository;
  for (const auto& name : names) {
    try {
      return repository_named(image, name);
    } catch (const std::exception& error) {
      log::debug("{}: {}", name, error.what());
    }
  }
  return image.repository;
}

// Windows are fetched by range when a span is first needed, from beside the image. Where they cannot lie there, as the
// index came from elsewhere, they are kept here now: an index that is used must be complete, or reads would fail later.
void keep_windows(LocalIndex& local, const oci::Image& image, const LoadedIndex& index) {
  const auto& manifest = index.blobs.manifest.digest;
  const auto& wanted = index.blobs.layers;
  const auto lacks = [&](const LayerIndexBlobs& layer) {
    return layer.windows && !local.repository().has_blob(*layer.windows);
  };
  const auto name = image.repository->name();
  auto names = local.origins().of(manifest).repositories;
  // Where it came from may be gone, and then the image's repository stands in for it (source_of_kept).
  const bool is_beside = index.source->name() == name && (names.empty() || names.contains(name));
  if (is_beside || std::ranges::none_of(wanted, lacks)) return;
  names.insert(index.source->name());
  for (const auto& layer : wanted) {
    if (!lacks(layer)) continue;
    std::string trouble;
    const auto tries = [&](const std::string& repository) {
      try {
        local.blob(*layer.windows, *repository_named(image, repository), layer.windows->size);
        return true;
      } catch (const std::exception& error) {
        trouble = error.what();
        return false;
      }
    };
    if (!tries(name) && std::ranges::none_of(names, tries))
      fail<NotFound>(
          "{}: the index {} of image {} came from elsewhere, and what reads of layer {} need of it (its windows) is "
          "neither here nor there: {}; run: varve index {}",
          name, manifest.to_string(), image.digest().to_string(), layer.layer_digest.to_string(), trouble,
          image.typed());
  }
}

void refuse_refuted(const LocalIndex& local, const oci::Image& image, const ImageIndexBlobs& index) {
  for (const auto& layer : index.layers) {
    const auto refuted = local.origins().of(layer.map.digest).refuted;
    if (!refuted.empty())
      fail<trust::Untrusted>(
          "image {}: its index describes layer {} in a way that was found false here: {}; run: varve index --force {}",
          image.digest().to_string(), layer.layer_digest.to_string(), refuted, image.typed());
  }
}

std::uint64_t limit_of(const ImageIndexBlobs& index, const oci::Descriptor& blob) {
  const auto is = [&](const std::optional<oci::Descriptor>& other) { return other && other->digest == blob.digest; };
  if (is(index.tree)) return kMaxTreeBlobBytes;
  if (is(index.ranges)) return kMaxRangesBytes;
  if (is(index.cold)) return kMaxColdBlobBytes;
  if (is(index.profile)) return kMaxProfileBlobBytes;
  if (is(index.start_packs)) return kMaxStartPacksBlobBytes;
  return kMaxMapBlobBytes;
}

// What of the first load is not here, the largest first.
std::vector<oci::Descriptor> first_load_to_fetch(LocalIndex& local, const ImageIndexBlobs& index) {
  auto wanted = index.first_load();
  std::erase_if(wanted, [&](const oci::Descriptor& blob) { return local.repository().has_blob(blob); });
  std::ranges::stable_sort(wanted, std::greater(), &oci::Descriptor::size);
  return wanted;
}

// All of it at once: one after the other each would cost a round trip.
void fetch_first_load(LocalIndex& local, const LoadedIndex& index, const std::vector<oci::Descriptor>& wanted,
                      EarlyBlobs* early) {
  parallel_for(wanted.size(), kBlobsAtOnce, CancelFlag(), [&](std::size_t i, const CancelFlag&) {
    if (const auto here = early == nullptr ? std::nullopt : early->take(wanted[i]))
      oci::put_bytes(local.repository(), wanted[i], *here);
    else
      local.blob(wanted[i], *index.source, limit_of(index.blobs, wanted[i]));
  });
}

// What the manifest does not name a registry may collect.
void check_packs_are_named(const LoadedIndex& index, std::string_view what) {
  std::map<Digest, std::uint64_t> named;
  for (const auto& pack : index.blobs.packs) named[pack.digest] = pack.size;
  for (const auto& group : index.packs.groups) {
    const auto found = named.find(group.pack.blob);
    if (found == named.end() || found->second != group.pack.compressed_bytes())
      fail<CorruptData>("{}: the pack {} of {} is not what the manifest of the index names", what,
                        group.pack.blob.to_string(), group.name);
  }
}

void open_tree(LocalIndex& local, LoadedIndex& index) {
  index.tree_file = local.tree_file(index.blobs, *index.source);
  index.tree_mapping = MappedFile::open(index.tree_file);
  index.tree = std::make_unique<ErofsReader>(index.tree_mapping.bytes(), index.tree_file.string());
}

// `source`: who offers it; null if it is here.
LoadedIndex load_chosen(LocalIndex& local, const oci::Image& image, TrustedIndex chosen,
                        std::shared_ptr<oci::Repository> source, EarlyBlobs* early, const WithoutTree& meanwhile = {}) {
  LoadedIndex index;
  const bool is_here = source == nullptr;
  index.source = is_here ? source_of_kept(local, image, chosen.found.blobs.manifest.digest) : std::move(source);
  index.blobs = std::move(chosen.found.blobs);
  index.judgement = std::move(chosen.judgement);
  if (!is_here) index.loaded_bytes += index.blobs.manifest.size;
  auto wanted = first_load_to_fetch(local, index.blobs);
  for (const auto& blob : wanted) index.loaded_bytes += blob.size;
  // The tree beside the rest, as it takes as long as all of that.
  const auto is_tree = [&](const oci::Descriptor& blob) { return blob.digest == index.blobs.tree.digest; };
  std::vector<oci::Descriptor> tree_to_fetch;
  std::ranges::copy_if(wanted, std::back_inserter(tree_to_fetch), is_tree);
  std::erase_if(wanted, is_tree);
  auto tree = std::async(std::launch::async, [&] {
    fetch_first_load(local, index, tree_to_fetch, early);
    open_tree(local, index);
  });
  fetch_first_load(local, index, wanted, early);

  std::map<Digest, std::shared_ptr<const LayerMap>> maps;  // an image may name a layer twice
  for (std::size_t layer = 0; layer < index.blobs.layers.size(); ++layer) {
    const auto& layer_blobs = index.blobs.layers[layer];
    auto& map = maps[layer_blobs.layer_digest];
    if (map == nullptr) {
      map = load_map(local, image, layer_blobs, *index.source, layer);
    } else if (map->diff_id != image.config.diff_ids.at(layer)) {
      fail<CorruptData>("image {}: layer {} has two diff_ids", image.digest().to_string(),
                        layer_blobs.layer_digest.to_string());
    }
    index.maps.push_back(map);
  }
  if (index.blobs.ranges) {
    index.ranges =
        unpack_ranges(local.blob(*index.blobs.ranges, *index.source, kMaxRangesBytes), what_of(*index.blobs.ranges));
  }
  if (index.blobs.cold) {
    const auto what = what_of(*index.blobs.cold);
    index.cold = ColdRanges::decode(local.blob(*index.blobs.cold, *index.source, kMaxColdBlobBytes), what);
    index.cold.check(index.maps, what);
  }
  if (index.blobs.profile) {
    const auto what = what_of(*index.blobs.profile);
    index.profile = Profile::decode(local.blob(*index.blobs.profile, *index.source, kMaxProfileBlobBytes), what);
    index.profile.check(index.maps, what);
  }
  if (index.blobs.start_packs) {
    const auto what = what_of(*index.blobs.start_packs);
    index.packs =
        unpack_start_packs(index.blobs.start_packs->media_type,
                           local.blob(*index.blobs.start_packs, *index.source, kMaxStartPacksBlobBytes), what);
    index.packs.check(index.maps, what);
    check_packs_are_named(index, what);
  }
  keep_windows(local, image, index);
  if (meanwhile) meanwhile(index);
  tree.get();
  try {
    check_devices(index, image);
  } catch (const CorruptData& error) {
    // A tree that is whole, and of something else: the blob says what belongs here.
    log::warn("unpacking again: {}", error.what());
    std::filesystem::remove(index.tree_file);
    open_tree(local, index);
    check_devices(index, image);
  }
  return index;
}

}  // namespace

ChosenIndex choose_index(LocalIndex& local, const oci::Image& image, IndexPlace place) {
  local.judge().require_image(image, &local.repository());
  std::vector<std::string> refusals;
  auto choice = find_choice(local, image, place, refusals);
  if (!choice && !refusals.empty()) throw trust::Untrusted(local.judge().refusal(trust::Request::of(image), refusals));
  if (!choice)
    fail<NotFound>(
        "{0}: image {1} is not indexed: `varve index {2}` gives it an index for every machine, --index-here of "
        "`run`, `mount` and `pull` makes one for this machine alone; --index-from names a repository that has one",
        image.repository->name(), image.digest().to_string(), image.typed());
  refuse_refuted(local, image, choice->index.found.blobs);
  return std::move(*choice);
}

LoadedIndex load_index_first(const LocalIndex& known, const oci::Image& image, ChosenIndex chosen,
                             const WithoutTree& meanwhile) {
  auto local = known;
  const auto document = chosen.index.found.document;
  const bool is_here = chosen.source == nullptr;
  auto index =
      load_chosen(local, image, std::move(chosen.index), std::move(chosen.source), chosen.early.get(), meanwhile);
  if (!is_here) {
    oci::put_bytes(local.repository(), document.descriptor, document.bytes);
    local.origins().note_repository(document.descriptor.digest, index.source->name());
    // When everything it needs at first is here: from then on a mount works without the repository of the index.
    list_this_index(local, index);
  }
  if (!index.judgement.vouched) note_use(local, image, document.descriptor.digest, chosen.other_notes_only);
  return index;
}

void list_this_index(LocalIndex& local, const LoadedIndex& index) {
  local.list_later(index.blobs.image_digest, [image = index.blobs.image_digest,
                                              manifest = index.blobs.manifest.digest](oci::Repository& repository) {
    const auto listed = repository.referrers(image, kIndexArtifactType);
    if (std::ranges::find(listed, manifest, &oci::Descriptor::digest) != listed.end()) return;
    const auto document = repository.manifest(manifest.to_string());
    oci::put_bytes(repository, oci::empty_json(), oci::kEmptyJsonType);
    repository.put_manifest(document.bytes, document.descriptor.media_type, "");
  });
}

LoadedIndex load_index(const LocalIndex& local, const oci::Image& image, ChosenIndex chosen) {
  auto index = load_index_first(local, image, std::move(chosen), {});
  local.wait_until_listed(image.digest());
  return index;
}

LoadedIndex load_index(LocalIndex& local, const oci::Image& image, IndexPlace place) {
  return load_index(local, image, choose_index(local, image, place));
}

LoadedIndex load_this_index(LocalIndex& local, const oci::Image& image, const Digest& index_manifest) {
  TrustedIndex index;
  index.found.document = local.repository().manifest(index_manifest.to_string());
  index.found.blobs = parse_index_manifest(index.found.document, image);
  refuse_refuted(local, image, index.found.blobs);
  return load_chosen(local, image, std::move(index), nullptr, nullptr);
}

std::set<Digest> packs_named(LocalIndex& local, const Digest& image) {
  std::set<Digest> packs;
  auto& here = local.repository();
  for (const auto& listed : here.referrers(image, kIndexArtifactType)) {
    const auto name = listed.digest.to_string();
    try {
      const auto document = here.manifest(name);
      for (const auto& blob : oci::Manifest::parse(document.bytes, document.descriptor.media_type, name).layers)
        if (blob.media_type == kPackMediaType) packs.insert(blob.digest);
    } catch (const Error& error) {
      log::debug("index {}: {}", name, error.what());
    }
  }
  return packs;
}

std::shared_ptr<const LayerMap> find_map(const std::filesystem::path& root, const Digest& blob) {
  const auto path = blob_path(root, blob);
  try {
    const auto bytes = read_file_if_there(path, kMaxMapBlobBytes);
    if (!bytes) return nullptr;
    if (digest_of(*bytes) != blob) fail<CorruptData>("its content has another digest");
    return std::make_shared<const LayerMap>(LayerMap::decode(*bytes, path.string()));
  } catch (const std::exception& error) {
    log::warn("{}: {}", path.string(), error.what());
    return nullptr;
  }
}

}  // namespace varve::index
