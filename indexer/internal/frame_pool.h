#pragma once
// Compresses pieces on several threads and gives them back in the order they came.
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/bytes.h"
#include "core/codec/frame_encoder.h"
#include "indexer/internal/bounded_queue.h"

namespace varve::indexer {

// Pieces that are compressed by one thread in one go; each becomes a frame of its own.
struct FrameBatch {
  Bytes content;                          // of all pieces
  std::vector<std::size_t> content_ends;  // of each piece, in `content`
  Bytes frames;
  std::vector<std::size_t> frame_ends;  // of each piece, in `frames`
};

class FramePool {
 public:
  FramePool(codec::FrameFormat format, int level, unsigned jobs);
  ~FramePool();

  // Waits while too many batches are under way, calling `done` for those that are complete, in order.
  using Done = std::function<void(FrameBatch&&)>;
  void add(FrameBatch batch, const Done& done);
  // Waits for all that is left.
  void drain(const Done& done);

 private:
  struct Job {
    FrameBatch batch;
    std::exception_ptr failure;
    std::latch ready{1};
  };
  void work(codec::FrameFormat format, int level);
  void take_first(const Done& done);

  std::size_t max_pending_;
  BoundedQueue<std::shared_ptr<Job>> queue_;
  std::deque<std::shared_ptr<Job>> pending_;
  std::vector<std::jthread> threads_;
};

}  // namespace varve::indexer
