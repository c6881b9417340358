// SpanFetcher's part for layers that are decoded from their start.
#include "core/base/errors.h"
#include "fuse/stream/span_fetcher.h"
#include "fuse/stream/stream_metrics.h"
#include "fuse/stream/whole_blob.h"

namespace varve::fuse {
namespace {

// Each may hold a decoder window of 128 MiB, and more streams would only share the link.
constexpr std::size_t kWholeBlobThreads = 2;

}  // namespace

void SpanFetcher::queue_whole_blob(const std::shared_ptr<FetchLayer>& layer) {
  if (!whole_layers_.insert(layer.get()).second) return;
  whole_queue_.push_back(layer);
  if (whole_threads_.size() < kWholeBlobThreads) whole_threads_.emplace_back([this] { whole_blob_loop(); });
  whole_changed_.notify_one();
}

void SpanFetcher::whole_blob_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    whole_changed_.wait(lock, [&] { return stopping_ || !whole_queue_.empty(); });
    if (stopping_) return;
    const auto layer = std::move(whole_queue_.front());
    whole_queue_.pop_front();
    lock.unlock();
    run_whole_blob(layer);
    lock.lock();
    whole_layers_.erase(layer.get());
    // Spans may have been asked for, or dropped, behind the place where the stream was.
    for (auto task = tasks_.lower_bound({layer.get(), 0}); task != tasks_.end() && task->first.first == layer.get();
         ++task)
      if (task->second.stage == Task::Stage::kWholeBlob && !stopping_) queue_whole_blob(layer);
  }
}

void SpanFetcher::on_whole_blob_span(const std::shared_ptr<FetchLayer>& layer, std::size_t span, ByteView stream) {
  std::unique_lock lock(mutex_);
  const auto find_task = [&] {  // only we end tasks of this stage
    const auto task = tasks_.find({layer.get(), span});
    return task != tasks_.end() && task->second.stage == Task::Stage::kWholeBlob ? task : tasks_.end();
  };
  if (const auto task = find_task(); task != tasks_.end()) answer_readers(lock, task, stream);
  lock.unlock();
  if (!layer->store.touch_if_readable(span)) {
    layer->counters.decoded_bytes.fetch_add(stream.size(), std::memory_order_relaxed);
    layer->store.put(span, stream);
  }
  const bool on_disk = layer->store.state(span) != SpanStore::State::kInMemory;
  Calls calls;
  lock.lock();
  if (const auto task = find_task(); task != tasks_.end()) {
    answer_readers(lock, task, stream);
    end_task(task, nullptr, on_disk, calls);
  }
  lock.unlock();
  carry_out(std::move(calls));
}

void SpanFetcher::run_whole_blob(const std::shared_ptr<FetchLayer>& layer) {
  Attempts attempts(layer->blob_sources.preferred());
  while (!stopping_) {
    try {
      const auto repository = layer->blob_sources.nth(attempts.source());
      if (!repository) fail<NotFound>("{}: no repository to fetch it from", layer->blob.digest.to_string());
      const TimedRequest timed(options_.metrics.get(), *repository);
      stream_whole_blob(*layer, *repository, stopping_,
                        [&](std::size_t span, ByteView stream) { on_whole_blob_span(layer, span, stream); });
      layer->blob_sources.prefer(attempts.source());
      return;
    } catch (...) {
      const auto error = std::current_exception();
      layer->blob_sources.note_wrong_bytes(attempts.source(), layer->blob,
                                           {.offset = 0, .length = layer->map->compressed_bytes}, error);
      const auto delay = after_whole_blob_failure(*layer, attempts, error);
      if (!delay) return;
      std::unique_lock lock(mutex_);
      whole_changed_.wait_for(lock, *delay, [&] { return stopping_.load(); });
    }
  }
}

std::optional<std::chrono::milliseconds> SpanFetcher::after_whole_blob_failure(FetchLayer& layer, Attempts& attempts,
                                                                               const std::exception_ptr& error) {
  Calls calls;
  std::optional<std::chrono::milliseconds> delay;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return std::nullopt;
    bool wanted = false;
    const auto of_layer = [&](Tasks::iterator task) { return task != tasks_.end() && task->first.first == &layer; };
    for (auto task = tasks_.lower_bound({&layer, 0}); of_layer(task); ++task) {
      note_failure(task, error);
      wanted = wanted || somebody_waits(task);
    }
    delay = attempts.after(error, layer.blob_sources.size(), wanted, layer.blob_sources.copies());
    for (auto task = tasks_.lower_bound({&layer, 0}); of_layer(task) && !delay;) {
      const auto next = std::next(task);
      if (task->second.stage == Task::Stage::kWholeBlob) end_task(task, error, false, calls);
      task = next;
    }
  }
  carry_out(std::move(calls));
  return delay;
}

}  // namespace varve::fuse
