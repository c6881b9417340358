#include "fuse/pull.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/base/errors.h"
#include "core/index/cold_ranges.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kPieceBytes = 8 << 20;  // stream side; spans of neighbours become one request below
constexpr std::size_t kMaxPieces = 8;           // wanted at a time: a reader that comes in between waits for no more than these
constexpr auto kLookAround = std::chrono::milliseconds(200);

// Outlives the pull if that is stopped while pieces are under way.
struct Pieces {
  std::mutex mutex;
  std::condition_variable arrived;
  std::size_t under_way = 0;
  std::exception_ptr error;
};

class Pull {
 public:
  Pull(const std::vector<PulledLayer>& layers, const ProgressCallback& progress, const std::function<bool()>& stop_wanted)
      : layers_(layers), progress_(progress), stop_wanted_(stop_wanted) {}

  void run() {
    for (const auto& layer : layers_) {
      for (const auto& wanted : wanted_of(layer)) {
        for (auto offset = wanted.offset; offset < wanted.end(); offset += kPieceBytes) {
          const ByteRange piece{offset, std::min(kPieceBytes, wanted.end() - offset)};
          if (layer.stream->present(piece)) continue;
          wait_until_at_most(kMaxPieces - 1);
          want(*layer.stream, piece);
        }
      }
    }
    wait_until_at_most(0);
    report();
  }

 private:
  // All but the spans that may stay away; one that is cold only in part is wanted.
  static std::vector<ByteRange> wanted_of(const PulledLayer& layer) {
    const auto& map = layer.stream->map();
    std::vector<ByteRange> wanted;
    std::uint64_t at = 0;
    const auto want_up_to = [&](std::uint64_t end) {
      if (end > at) wanted.push_back({.offset = at, .length = end - at});
    };
    index::for_each_span_within(map, layer.left_out, [&](std::size_t span) {
      const auto& range = map.spans[span].stream_range;
      want_up_to(range.offset);
      at = range.end();
    });
    want_up_to(map.stream_bytes);
    return wanted;
  }

  void want(LayerStream& layer, ByteRange piece) {
    {
      const std::lock_guard guard(pieces_->mutex);
      ++pieces_->under_way;
    }
    layer.ensure(piece, Priority::kBackground, [pieces = pieces_](std::exception_ptr error) {
      const std::lock_guard guard(pieces->mutex);
      --pieces->under_way;
      if (error && !pieces->error) pieces->error = error;
      pieces->arrived.notify_one();
    });
  }

  void wait_until_at_most(std::size_t under_way) {
    std::unique_lock lock(pieces_->mutex);
    while (true) {
      if (pieces_->error) std::rethrow_exception(pieces_->error);
      if (pieces_->under_way <= under_way) return;
      pieces_->arrived.wait_for(lock, kLookAround);
      lock.unlock();
      if (stop_wanted_()) throw Cancelled("pull: stopped");
      report();
      lock.lock();
    }
  }

  void report() const {
    if (!progress_) return;
    std::uint64_t present = 0, expected = 0;
    for (const auto& layer : layers_) {
      const auto stats = layer.stream->stats();
      const auto cold = cold_bytes_of(*layer.stream, layer.left_out);
      present += stats.present_bytes - std::min(stats.present_bytes, cold.present_bytes);
      expected += stats.stream_bytes - cold.bytes;
    }
    progress_(present, expected);
  }

  const std::vector<PulledLayer>& layers_;
  const ProgressCallback& progress_;
  const std::function<bool()>& stop_wanted_;
  const std::shared_ptr<Pieces> pieces_ = std::make_shared<Pieces>();
};

}  // namespace

void pull_layers(const std::vector<PulledLayer>& layers, const ProgressCallback& progress, const std::function<bool()>& stop_wanted) {
  Pull(layers, progress, stop_wanted).run();
}

}  // namespace varve::fuse
