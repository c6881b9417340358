#pragma once
// Wants pieces of layers one after the other, a bounded amount at a time: what pulls and prefetches share.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/base/threads/cancel.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

// want() and wait() are for one thread, stop() for any.
class PiecesUnderWay {
 public:
  // `cancel`, which outlives this, does what stop() does, soon. May be null.
  PiecesUnderWay(Priority priority, std::uint64_t limit, const CancelFlag* cancel = nullptr);
  ~PiecesUnderWay() { stop(); }
  PiecesUnderWay(const PiecesUnderWay&) = delete;
  PiecesUnderWay& operator=(const PiecesUnderWay&) = delete;

  // Waits until `weight` fits in what is left of the limit (or nothing is under way), then wants the piece; `arrived`
  // is called, from any thread, if it comes before the end of this: short, and never two at a time. Throws the first
  // error of a piece that was wanted before, Cancelled after stop(). What is under way then still arrives, to nobody's
  // harm.
  void want(LayerStream& layer, ByteRange stream_range, std::uint64_t weight, std::function<void()> arrived = {});
  // Until all is here. Throws as want().
  void wait();
  void stop();

 private:
  struct State;  // outlives this if it ends with pieces under way
  void wait_for_room(std::uint64_t weight);

  const Priority priority_;
  const std::uint64_t limit_;
  const CancelFlag* const cancel_;
  const std::shared_ptr<State> state_;
};

}  // namespace varve::fuse
