#include "fuse/daemon/layer_proofs.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/index/prove_index.h"

namespace varve::fuse {
namespace {

constexpr auto kLookEvery = std::chrono::seconds(5);
constexpr double kLongestRestSeconds = 0.5;  // before it looks whether all are still busy
// What was found damaged is read again when there was time to repair it.
constexpr auto kLookAtDamagedEvery = std::chrono::minutes(10);

// Only what is here: nothing is fetched for a proof, but what the index says of a span.
index::ReadStream reader_of(const std::shared_ptr<LayerStream>& stream,
                            const std::function<void(std::size_t bytes)>& before_each) {
  return {.read =
              [stream, before_each](std::uint64_t offset, std::span<std::byte> into) {
                before_each(into.size());
                if (!stream->read_if_readable(offset, into))
                  fail<TemporaryError>("layer {} is not complete any more", stream->map().layer_digest.to_string());
              },
          .digest_of_span = [stream](std::size_t span) { return stream->bring_digest_of_span(span); }};
}

std::chrono::steady_clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

enum class Again : std::uint8_t { kNo, kYes };  // what was proved before, too

Digest map_digest(const ServedImage& image, const Digest& layer) {
  const auto& all = image.index().blobs.layers;
  return std::find_if(all.begin(), all.end(), [&](const auto& blobs) { return blobs.layer_digest == layer; })
      ->map.digest;
}

ImageProof prove_paced(const ServedImage& image, index::LocalIndex& local, bool with_tree, Again again,
                       const std::function<void(std::size_t)>& before_each) {
  ImageProof proof;
  bool all = true;
  for (const auto& stream : image.distinct_layers()) {
    auto& layer =
        proof.layers.emplace_back(LayerProof{.layer = stream->map().layer_digest, .complete = stream->complete()});
    const auto map = map_digest(image, layer.layer);
    // What is in the store has the digests of its map: once its layer was proved, the map is.
    const bool known = again == Again::kNo && local.origins().of(map).proved;
    if (layer.complete && !known) layer.refuted = index::disprove_layer(stream->map(), reader_of(stream, before_each));
    layer.proved = layer.complete && layer.refuted.empty();
    all = all && layer.proved;
    if (layer.proved && !known) local.origins().note_proved(map);
    if (layer.refuted.empty()) continue;
    log::error("image {}: index {} is false and will not be used again: {}", image.digest().to_string(),
               image.index_digest().to_string(), layer.refuted);
    local.origins().note_refuted(image.index_digest(), layer.refuted);
    local.origins().note_refuted(map, layer.refuted);  // whoever names that map again is not believed either
  }
  if (!with_tree || !all) return proof;
  const auto read = [&](std::size_t layer) { return reader_of(image.layers().at(layer), before_each); };
  if (const auto lie = index::disprove_packs(image.index(), read); !lie.empty()) {
    proof.tree_refuted = lie;
    log::error("image {}: index {} is false and will not be used again: {}", image.digest().to_string(),
               image.index_digest().to_string(), lie);
    local.origins().note_refuted(image.index_digest(), lie);
    return proof;
  }
  const auto differs = index::disprove_tree(image.index(), image.image(), read);
  if (differs.empty()) {
    proof.tree_proved = true;
    local.origins().note_proved(image.index_digest());
  } else if (index::must_be_equal(image.index())) {
    proof.tree_refuted = differs;
    log::error("image {}: index {} is false and will not be used again: {}", image.digest().to_string(),
               image.index_digest().to_string(), differs);
    local.origins().note_refuted(image.index_digest(), differs);
  } else {
    log::info(
        "image {}: index {} is of {}, and what this version makes of the layers differs ({}): neither proved nor "
        "refuted",
        image.digest().to_string(), image.index_digest().to_string(), image.index().blobs.tool, differs);
  }
  return proof;
}

}  // namespace

bool ImageProof::refuted() const {
  return !tree_refuted.empty() ||
         std::any_of(layers.begin(), layers.end(), [](const LayerProof& layer) { return !layer.refuted.empty(); });
}

ImageProof prove(const ServedImage& image, index::LocalIndex& local, bool with_tree, const CancelFlag& cancel) {
  auto proof = prove_paced(image, local, with_tree, Again::kYes, [&](std::size_t) { cancel.throw_if_cancelled(); });
  image.note_proved_layers(std::size_t(
      std::count_if(proof.layers.begin(), proof.layers.end(), [](const LayerProof& layer) { return layer.proved; })));
  return proof;
}

LayerProofs::LayerProofs(std::shared_ptr<index::LocalIndex> local, std::function<bool()> busy)
    : local_(std::move(local)), busy_(std::move(busy)) {}

LayerProofs::~LayerProofs() { stop(); }

void LayerProofs::watch(const std::shared_ptr<ServedImage>& image) {
  const std::lock_guard guard(mutex_);
  std::erase_if(images_, [](const auto& weak) { return weak.expired(); });
  const auto same = [&](const auto& weak) { return weak.lock() == image; };
  if (std::none_of(images_.begin(), images_.end(), same)) images_.push_back(image);
  // No thread before there is an image: the daemon forks into the background first.
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  changed_.notify_all();
}

void LayerProofs::stop() {
  std::jthread ending;
  {
    const std::lock_guard guard(mutex_);
    ending = std::move(thread_);
  }
  ending.request_stop();
}

void LayerProofs::run(const std::stop_token& stop) {
  ::setpriority(PRIO_PROCESS, id_t(::syscall(SYS_gettid)), 19);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto images = images_;
    lock.unlock();
    for (const auto& weak : images) {
      if (const auto image = weak.lock(); image && !stop.stop_requested()) look_at(image, stop);
    }
    lock.lock();
    changed_.wait_for(lock, stop, kLookEvery, [] { return false; });
  }
}

// Each layer once, when it is complete; the tree when all are.
void LayerProofs::look_at(const std::shared_ptr<ServedImage>& image, const std::stop_token& stop) {
  const auto& layers = image->distinct_layers();
  const auto complete =
      std::size_t(std::count_if(layers.begin(), layers.end(), [](const auto& layer) { return layer->complete(); }));
  const auto began = std::chrono::steady_clock::now();
  if (complete <= image->looked_at_layers() || began < image->not_looked_at_before()) return;
  std::uint64_t bytes = 0;
  try {
    const auto origin = local_->origins().of(image->index_digest());
    if (origin.built_here || origin.proved) {  // its maps were made of the layers, or proved by them
      image->note_proved_layers(complete);
      image->note_looked_at_layers(complete);
      return;
    }
    Stopwatch worked;
    const auto pace = [&](std::size_t more) {
      if (stop.stop_requested()) throw Cancelled("stopped");
      bytes += more;
      const auto rest = busy_() ? std::min(worked.seconds() * (kShareWhileBusy - 1), kLongestRestSeconds) : 0;
      const auto due = std::max(began + duration_of(double(bytes) / double(kBytesPerSecond)),
                                std::chrono::steady_clock::now() + duration_of(rest));
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, stop, due, [] { return false; });
      worked = Stopwatch();
    };
    const auto proof = prove_paced(*image, *local_, true, Again::kNo, pace);
    image->note_proved_layers(std::size_t(
        std::count_if(proof.layers.begin(), proof.layers.end(), [](const LayerProof& layer) { return layer.proved; })));
    image->note_looked_at_layers(complete);
    if (complete < layers.size())
      log::debug("image {}: {} of {} layers are complete and proved", image->digest().to_string(), complete,
                 layers.size());
  } catch (const Cancelled&) {
  } catch (const index::DamagedStream& error) {
    log::error("{}: the store is damaged there: `varve verify {}` repairs it", error.what(), image->reference());
    image->not_looked_at_before(std::chrono::steady_clock::now() + kLookAtDamagedEvery);
  } catch (const std::exception& error) {
    log::info("image {}: its layers are looked at again later: {}", image->digest().to_string(), error.what());
  }
}

}  // namespace varve::fuse
