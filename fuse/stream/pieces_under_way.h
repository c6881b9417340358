#pragma once
// Wants pieces of layers one after the other, a bounded amount at a time: what pulls and prefetches share.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

// want() and wait() are for one thread, stop() for any.
class PiecesUnderWay {
 public:
  // `look_around` is called now and then while one waits; what it throws ends the wait. May be empty.
  PiecesUnderWay(Priority priority, std::uint64_t limit, std::function<void()> look_around);
  PiecesUnderWay(const PiecesUnderWay&) = delete;
  PiecesUnderWay& operator=(const PiecesUnderWay&) = delete;

  // Waits until `weight` fits in what is left of the limit (or nothing is under way), then wants the piece; `arrived`
  // is called, from any thread, if it comes. Throws the first error of a piece that was wanted before, Cancelled after
  // stop(). What is under way then still arrives, to nobody's harm.
  void want(LayerStream& layer, ByteRange stream_range, std::uint64_t weight, std::function<void()> arrived = {});
  // Until all is here. Throws as want().
  void wait();
  void stop();

 private:
  struct State;  // outlives this if it ends with pieces under way
  void wait_for_room(std::uint64_t weight);

  const Priority priority_;
  const std::uint64_t limit_;
  const std::function<void()> look_around_;
  const std::shared_ptr<State> state_;
};

}  // namespace varve::fuse
