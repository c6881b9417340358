#include "fuse/stream/pieces_under_way.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/base/errors.h"

namespace varve::fuse {
namespace {

constexpr auto kLookAtCancel = std::chrono::milliseconds(200);

}  // namespace

struct PiecesUnderWay::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t weight = 0;
  std::size_t pieces = 0;
  bool stopped = false;
  std::exception_ptr error;
};

PiecesUnderWay::PiecesUnderWay(Priority priority, std::uint64_t limit, const CancelFlag* cancel)
    : priority_(priority), limit_(limit), cancel_(cancel), state_(std::make_shared<State>()) {}

void PiecesUnderWay::want(LayerStream& layer, ByteRange stream_range, std::uint64_t weight,
                          std::function<void()> arrived) {
  wait_for_room(weight);
  {
    const std::lock_guard guard(state_->mutex);
    state_->weight += weight;
    ++state_->pieces;
  }
  layer.ensure(stream_range, priority_,
               [state = state_, weight, arrived = std::move(arrived)](std::exception_ptr error) {
                 const std::lock_guard guard(state->mutex);
                 if (!error && arrived && !state->stopped) arrived();
                 state->weight -= weight;
                 --state->pieces;
                 if (error && !state->error) state->error = error;
                 state->changed.notify_one();
               });
}

void PiecesUnderWay::wait() { wait_for_room(limit_); }

// A weight of the whole limit fits only when nothing is under way, and so does one that is larger.
void PiecesUnderWay::wait_for_room(std::uint64_t weight) {
  std::unique_lock lock(state_->mutex);
  while (true) {
    if (state_->error) std::rethrow_exception(state_->error);
    if (state_->stopped) throw Cancelled("fetching: stopped");
    if (state_->pieces == 0 || (weight < limit_ && state_->weight <= limit_ - weight)) return;
    state_->changed.wait_for(lock, kLookAtCancel);
    if (cancel_ != nullptr) cancel_->throw_if_cancelled();
  }
}

void PiecesUnderWay::stop() {
  const std::lock_guard guard(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_one();
}

}  // namespace varve::fuse
