#include "indexer/internal/frame_pool.h"

#include <algorithm>
#include <utility>

namespace varve::indexer {
namespace {

constexpr std::size_t kPendingPerThread = 4;

void compress(codec::FrameEncoder& encoder, FrameBatch& batch) {
  std::size_t begin = 0;
  for (const auto end : batch.content_ends) {
    encoder.encode(ByteView(batch.content).subspan(begin, end - begin), batch.frames);
    batch.frame_ends.push_back(batch.frames.size());
    begin = end;
  }
}

unsigned thread_count(unsigned jobs) { return jobs != 0 ? jobs : std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace

FramePool::FramePool(codec::FrameFormat format, int level, unsigned jobs)
    : max_pending_(kPendingPerThread * thread_count(jobs)), queue_(max_pending_ + 1) {
  for (unsigned i = 0; i < thread_count(jobs); ++i)
    threads_.emplace_back([this, format, level] { work(format, level); });
}

FramePool::~FramePool() { queue_.abort(); }

void FramePool::work(codec::FrameFormat format, int level) {
  codec::FrameEncoder encoder(format, level);
  while (const auto job = queue_.pop()) {
    try {
      compress(encoder, (*job)->batch);
    } catch (...) {
      (*job)->failure = std::current_exception();
    }
    (*job)->ready.count_down();
  }
}

void FramePool::add(FrameBatch batch, const Done& done) {
  while (pending_.size() >= max_pending_ || (!pending_.empty() && pending_.front()->ready.try_wait())) take_first(done);
  const auto job = std::make_shared<Job>();
  job->batch = std::move(batch);
  pending_.push_back(job);
  queue_.push(job);
}

void FramePool::drain(const Done& done) {
  while (!pending_.empty()) take_first(done);
}

void FramePool::take_first(const Done& done) {
  const auto job = std::move(pending_.front());
  pending_.pop_front();
  job->ready.wait();
  if (job->failure) std::rethrow_exception(job->failure);
  done(std::move(job->batch));
}

}  // namespace varve::indexer
