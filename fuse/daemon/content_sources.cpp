#include "fuse/daemon/content_sources.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/index/index_sources.h"
#include "core/index/this_index.h"
#include "core/index/unit_matcher.h"
#include "fuse/daemon/kept_images.h"
#include "fuse/stream/stored_streams.h"

namespace varve::fuse {
namespace {

StoredLayer name_of(const index::LayerIndexBlobs& blobs) {
  return {.layer = blobs.layer_digest, .map = blobs.map.digest, .entries = blobs.entries.digest};
}

// Of 400,000 files they have 14 MB. More is not worth the daemon's memory.
constexpr std::uint64_t kMostEntriesBytes = 64 << 20;

// Decompressed. Of 400,000 files they have some 4 MB, and five times that in memory.
constexpr std::uint64_t kMostSeedsBytes = 8 << 20;

// A smaller content is here in part only where nobody has read all of it: at an end of what somebody read.
constexpr std::uint64_t kLeastPartedBytes = 64 << 10;

// Who serves blobs of its index; opened anew, so that it can be cancelled.
std::shared_ptr<oci::Repository> index_repository(const ServedImage& image, const CancelFlag& cancel) {
  auto of = image.image();
  of.registry = image.spec().registry;
  of.registry.cancel = &cancel;
  const auto& source = image.index().source;
  if (source && source->name() != of.repository->name()) return index::repository_named(of, source->name());
  return oci::open_repository(oci::Reference::parse(image.reference()), of.registry);
}

// A daemon that took it over from another has not judged it.
bool is_vouched_for(index::LocalIndex& local, const ServedImage& image) {
  if (image.index().judgement.vouched) return true;
  const index::FoundIndex found{.blobs = image.index().blobs,
                                .document = local.repository().manifest(image.index_digest().to_string())};
  return local.judge(image.image(), found, local.repository(), false).vouched;
}

std::string repository_of(const std::string& reference) { return oci::Reference::parse(reference).repository_name(); }

}  // namespace

// A layer that is held open while it is made somebody's source.
struct ContentSources::Source {
  StoredLayer name;
  oci::Descriptor entries;
  std::shared_ptr<LayerStream> stream;
  bool vouched = false;  // for the index that describes it so
};

ContentSources::ContentSources(const std::shared_ptr<index::LocalIndex>& local, const OpenedImages& opened,
                               LayerStreams& streams, std::filesystem::path root)
    : local_(local), opened_(opened), streams_(streams), root_(std::move(root)) {}

void ContentSources::learn_later(const std::shared_ptr<ServedImage>& image, By by) {
  const std::lock_guard guard(mutex_);
  if (stopping_.cancelled() || is_learnt(*image, by)) return;
  waiting_.push_back({.image = image, .by = by});
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  changed_.notify_all();
}

void ContentSources::stop() {
  std::jthread ending;
  {
    const std::lock_guard guard(mutex_);
    stopping_.cancel();
    ending = std::move(thread_);
  }
  ending.request_stop();
}

void ContentSources::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
    auto image = waiting_.front().image.lock();
    const auto by = waiting_.front().by;
    waiting_.pop_front();
    lock.unlock();
    try {
      if (image) learn(image, by, stopping_);
    } catch (const Cancelled&) {
    }
    image.reset();  // perhaps nobody else holds it any more
    lock.lock();
  }
}

std::vector<ContentSources::Learnt>::iterator ContentSources::find_learnt(const ServedImage& image) {
  std::erase_if(learnt_, [](const Learnt& one) { return one.image.expired(); });
  return std::ranges::find_if(learnt_, [&](const Learnt& one) { return one.image.lock().get() == &image; });
}

bool ContentSources::is_learnt(const ServedImage& image, By by) {
  const auto learnt = find_learnt(image);
  return learnt != learnt_.end() && learnt->opened == opened_so_far_ && learnt->by >= by;
}

void ContentSources::learn(const std::shared_ptr<const ServedImage>& image, By by, const CancelFlag& cancel) {
  std::uint64_t opened = 0;
  {
    const std::lock_guard guard(mutex_);
    // What was learnt of others before an image came that is new here is to be learnt again: they may take something of
    // it.
    if (find_learnt(*image) == learnt_.end()) ++opened_so_far_;
    opened = opened_so_far_;
    if (is_learnt(*image, by)) return;
  }
  if (!learn_all(*image, by, cancel)) return;
  const std::lock_guard guard(mutex_);
  if (const auto learnt = find_learnt(*image); learnt != learnt_.end()) learnt_.erase(learnt);
  learnt_.push_back({.image = image, .by = by, .opened = opened});
}

// Of one repository first, then the last used.
std::vector<OpenedImage> ContentSources::find_related(const ServedImage& image, const CancelFlag& cancel) const {
  const auto repository = repository_of(image.reference());
  std::set<Digest> layers;
  for (const auto& layer : image.image().manifest.layers) layers.insert(layer.digest);
  std::vector<OpenedImage> of_repository, sharing;
  std::set<Digest> seen{image.digest()};
  for (auto& one : opened_.list()) {
    cancel.throw_if_cancelled();
    if (of_repository.size() == kMostImages) break;
    if (!seen.insert(one.image).second) continue;
    try {
      if (repository_of(one.reference) == repository)
        of_repository.push_back(std::move(one));
      else if (sharing.size() < kMostImages && std::ranges::any_of(layers_of(*local_, one.image), [&](const auto& its) {
                 return layers.contains(its);
               }))
        sharing.push_back(std::move(one));
    } catch (const Error& error) {
      log::debug("nothing is taken from {}: {}", one.reference, error.what());
    }
  }
  std::ranges::move(sharing, std::back_inserter(of_repository));
  if (of_repository.size() > kMostImages) of_repository.resize(kMostImages);
  return of_repository;
}

// True if what the layer holds is known when this returns.
bool ContentSources::know(const StoredLayer& layer, const oci::Descriptor& entries, oci::Repository& from) const {
  if (streams_.contents(layer) != nullptr) return true;
  const auto what = "layer entries " + entries.digest.to_string();
  try {
    const auto blob = local_->blob(entries, from, kMostEntriesBytes);
    streams_.note_contents(layer, index::LayerEntries::decode(blob, what));
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& error) {
    log::info("layer {}: what it holds stays unknown, nothing is copied to it or from it: {}", layer.layer.to_string(),
              error.what());
  }
  return streams_.contents(layer) != nullptr;
}

// Absent if nothing of it is in the store.
std::optional<ContentSources::Source> ContentSources::open_source(const StoredLayer& name,
                                                                  const oci::Descriptor& entries,
                                                                  const std::vector<StoredLayer>& stored) const {
  if (!std::ranges::binary_search(stored, name)) return std::nullopt;
  auto stream = open_stored_stream(streams_, name, *name.map, root_);
  if (!stream) return std::nullopt;
  return Source{.name = name, .entries = entries, .stream = std::move(stream)};
}

// Layers of which something is in the store, by the index that is taken for the image now.
void ContentSources::add_layers(const ServedImage& image, const OpenedImage& related,
                                const std::vector<StoredLayer>& stored, std::vector<Source>& sources) const {
  auto spec = image.spec();
  spec.reference = related.reference;
  spec.platform = related.platform;
  std::vector<std::string> refusals;
  const auto index = local_->find_trusted(open_kept_image(local_, spec, related.image), refusals);
  if (!index) return;
  for (const auto& blobs : index->found.blobs.layers) {
    const auto name = name_of(blobs);
    const auto known = std::ranges::find(sources, name, &Source::name);
    if (known != sources.end()) {
      known->vouched = known->vouched || index->judgement.vouched;
    } else if (auto source = open_source(name, blobs.entries, stored)) {
      source->vouched = index->judgement.vouched;
      sources.push_back(std::move(*source));
    }
  }
}

// Of all images of its repository that were opened here: who may read one may read the others. An index must not lead
// to layers of others, which its author may know by name.
std::set<Digest> ContentSources::layers_of_repository(const ServedImage& image) const {
  const auto repository = repository_of(image.reference());
  std::set<Digest> layers;
  for (const auto& one : opened_.list()) {
    try {
      if (repository_of(one.reference) == repository) layers.merge(layers_of(*local_, one.image));
    } catch (const Error& error) {
      log::debug("nothing is taken from {}: {}", one.reference, error.what());
    }
  }
  return layers;
}

// False if none of the layers that they name is here.
bool ContentSources::use_seeds(const ServedImage& image, oci::Repository& from) const {
  const auto& index = image.index();
  if (!index.blobs.seeds || !is_vouched_for(*local_, image)) return false;
  if (image.uses_seeds()) return true;
  const auto what = "index blob " + index.blobs.seeds->digest.to_string();
  auto seeds = index::unpack_seeds(local_->blob(*index.blobs.seeds, from, kMostSeedsBytes), what, kMostSeedsBytes);
  seeds.check(index.maps, what);
  const auto readable = layers_of_repository(image);
  const auto stored = streams_.stored_layers();
  std::vector<std::shared_ptr<LayerStream>> streams;
  for (const auto& source : seeds.sources) {
    auto here = readable.contains(source.layer)
                    ? open_source({.layer = source.layer, .map = source.map, .entries = source.entries}, {}, stored)
                    : std::nullopt;
    streams.push_back(here ? std::move(here->stream) : nullptr);
  }
  const auto here = streams.size() - std::size_t(std::ranges::count(streams, nullptr));
  if (here == 0) return false;
  image.use_seeds(std::move(seeds), streams, ImageSeeds::Whole::kRead);
  log::info("image {}: what {} layers of its earlier version hold here is not fetched again",
            image.digest().to_string(), here);
  return true;
}

// What is wrong with them says nothing of entries.
bool ContentSources::try_seeds(const ServedImage& image, oci::Repository& from) const {
  try {
    return use_seeds(image, from);
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& error) {
    log::warn("image {}: its seeds are not used: {}", image.digest().to_string(), error.what());
    return false;
  }
}

// What is copied is proved by its digest, and is a whole content. Of contents that are here in part the entries of both
// say that they are equal, which counts where somebody vouches for both.
void ContentSources::use_parts(const ServedImage& image, const std::vector<Source>& sources) const {
  if (image.uses_seeds() || !is_vouched_for(*local_, image)) return;
  std::vector<const index::UnitTable*> tables;
  std::vector<std::shared_ptr<LayerStream>> streams;
  for (const auto& source : sources) {
    const auto* table = source.vouched ? streams_.contents(source.name) : nullptr;
    if (table == nullptr) continue;
    tables.push_back(table);
    streams.push_back(source.stream);
  }
  index::Seeds seeds;
  for (std::size_t i = 0; i < image.layers().size() && !tables.empty(); ++i) {
    const auto& blobs = image.index().blobs.layers[i];
    const auto* table = streams_.contents(name_of(blobs));
    const bool done =
        std::ranges::find(seeds.layers, blobs.layer_digest, &index::SeededLayer::layer) != seeds.layers.end();
    if (table == nullptr || done || image.layers()[i]->complete()) continue;
    index::SeededLayer layer{.layer = blobs.layer_digest, .ranges = {}, .literals = {}};
    index::UnitMatcher matcher(*table, tables);
    for (std::size_t content = 0; content < table->size(); ++content) {
      if (table->range(content).length < kLeastPartedBytes) continue;
      if (const auto place = matcher.find(content); place && streams[place->source] != image.layers()[i])
        layer.ranges.push_back(matcher.range_at(content, *place));
    }
    if (!layer.ranges.empty()) seeds.layers.push_back(std::move(layer));
  }
  if (!seeds.layers.empty()) image.use_seeds(std::move(seeds), streams, ImageSeeds::Whole::kCopied);
}

// Of layers that are neither the image's own nor seeds.
std::uint64_t ContentSources::bytes_beside(const ServedImage& image, const std::vector<Source>& sources) {
  const auto seeds = image.seeds().sources();
  const auto is_among = [](const auto& streams, const auto& stream) {
    return std::ranges::find(streams, stream) != streams.end();
  };
  std::uint64_t bytes = 0;
  for (const auto& source : sources)
    if (!is_among(image.layers(), source.stream) && !is_among(seeds, source.stream))
      bytes += source.stream->stats().present_bytes;
  return bytes;
}

// False if it may come out otherwise soon.
bool ContentSources::learn_all(const ServedImage& image, By by, const CancelFlag& cancel) {
  const auto& layers = image.index().blobs.layers;
  std::vector<std::size_t> targets;
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (!image.layers()[i]->complete()) targets.push_back(i);
  if (targets.empty()) return false;
  try {
    const auto related = find_related(image, cancel);
    if (related.empty()) return true;
    const auto from = index_repository(image, cancel);
    const bool seeded = by == By::kSeeds && try_seeds(image, *from);
    const auto stored = streams_.stored_layers();
    std::vector<Source> sources;
    for (const auto& one : related) {
      cancel.throw_if_cancelled();
      add_layers(image, one, stored, sources);
    }
    if (seeded && image.seeds().source_bytes() >= bytes_beside(image, sources)) return true;
    std::erase_if(sources, [&](const Source& source) {
      cancel.throw_if_cancelled();
      return !know(source.name, source.entries, *from);
    });
    std::vector<StoredLayer> names;
    for (const auto& source : sources) names.push_back(source.name);
    std::ranges::stable_sort(targets, std::greater(),  // the largest first
                             [&](std::size_t layer) { return image.layers()[layer]->map().stream_bytes; });
    bool all = true;
    for (const auto target : targets) {
      cancel.throw_if_cancelled();
      const auto name = name_of(layers[target]);
      if (know(name, layers[target].entries, *from))
        streams_.set_sources(name, names);
      else
        all = false;
    }
    use_parts(image, sources);
    log::info("image {}: what {} layers of {} images here hold is not fetched again", image.digest().to_string(),
              sources.size(), related.size());
    return all;
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& error) {
    log::info("image {}: nothing is taken from images that are here: {}", image.digest().to_string(), error.what());
    return false;
  }
}

}  // namespace varve::fuse
