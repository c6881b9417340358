#pragma once
// Makes spans present: each is fetched once however many wait for it, decoded, verified, stored, and then all who wait
// are told.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/codec/span_decoder.h"
#include "fuse/stream/attempts.h"
#include "fuse/stream/fetch_layer.h"
#include "fuse/stream/layer_stream.h"
#include "fuse/stream/range_fetcher.h"

namespace varve::fuse {

// Safe to use from any thread. No thread runs before the first span is wanted.
class SpanFetcher {
 public:
  SpanFetcher(const StreamOptions& options, Clock& clock);
  ~SpanFetcher();  // as stop()

  // Makes spans [first, last) readable. `done` is called once, as LayerStream::ensure says.
  void ensure(const std::shared_ptr<FetchLayer>& layer, std::size_t first, std::size_t last, Priority priority,
              LayerStream::Done done);
  // Fetches spans for which nobody waits; what fails is left.
  void fetch_ahead(const std::shared_ptr<FetchLayer>& layer, std::size_t first, std::size_t last, Priority priority);

  // Fails all who wait with Cancelled, then ends all threads.
  void stop();

 private:
  class BlobPieces;
  class WindowPieces;

  // One ensure(). Guarded by mutex_.
  struct Waiter {
    std::shared_ptr<FetchLayer> layer;
    std::size_t first = 0, last = 0;  // spans
    Priority priority = Priority::kReader;
    std::size_t spans_left = 0;
    LayerStream::Done done;  // empty once called
    Clock::TimePoint deadline;
    std::vector<SpanStore::Hold> holds;
    std::string last_error;
  };

  // One span under way. Guarded by mutex_, but for `compressed` while it is decoded.
  struct Task {
    enum class Stage { kFetching, kDecoding, kWholeBlob };
    std::shared_ptr<FetchLayer> layer;
    Priority priority = Priority::kBackground;
    Stage stage = Stage::kFetching;
    bool check_first = false;  // the store has unchecked bytes of it
    bool queued_to_decode = false;
    std::uint64_t sequence = 0;
    unsigned missing_blocks = 0;  // of its window
    std::optional<FetchedPiece> compressed;
    unsigned compressed_source = 0;
    Attempts blob_attempts;
    Attempts window_attempts;
    std::vector<std::shared_ptr<Waiter>> waiters;
  };
  // A block of windows under way, and the spans that need it.
  struct BlockTask {
    Attempts attempts;
    Priority priority = Priority::kBackground;
    std::vector<std::size_t> spans;
  };
  using Key = std::pair<FetchLayer*, std::size_t>;
  using Tasks = std::map<Key, Task>;

  // What is to be called once mutex_ is free.
  struct Call {
    LayerStream::Done done;
    std::exception_ptr error;
    std::vector<SpanStore::Hold> holds;
  };
  using Calls = std::vector<Call>;
  static void make(Calls calls);

  static std::optional<std::vector<SpanStore::Hold>> hold_if_readable(FetchLayer& layer, std::size_t first,
                                                                      std::size_t last);
  void attach(const std::shared_ptr<FetchLayer>& layer);
  Tasks::iterator want(const std::shared_ptr<FetchLayer>& layer, std::size_t span, Priority priority);
  void promote(Tasks::iterator task, Priority priority);
  void start(Tasks::iterator task);
  void request(Tasks::iterator task);
  void request_blob(Tasks::iterator task, std::chrono::milliseconds delay);
  void request_window(Tasks::iterator task, std::chrono::milliseconds delay);
  void decode_if_whole(Tasks::iterator task);
  void queue_to_decode(Tasks::iterator task);

  void on_blob_piece(FetchLayer& layer, std::size_t span, unsigned source, FetchedPiece fetched);
  void on_blob_failure(FetchLayer& layer, std::size_t span, const std::exception_ptr& error);
  void on_window_block(FetchLayer& layer, std::size_t block, unsigned source, const FetchedPiece& fetched);
  void on_window_failure(FetchLayer& layer, std::size_t block, const std::exception_ptr& error);

  void decode_loop();
  bool may_decode() const;
  void decode(Tasks::iterator task, codec::SpanDecoder& decoder, Bytes& stream);
  void on_decode_failure(Tasks::iterator task, const std::exception_ptr& error);
  void finish(Tasks::iterator task, const std::exception_ptr& error, const SpanStore::Hold& hold, Calls& calls);
  void want_evicted(const std::shared_ptr<Waiter>& waiter);
  void settle(Waiter& waiter, const std::exception_ptr& error, Calls& calls);
  void abandon(const Waiter& waiter);
  void set_deadline(const std::shared_ptr<Waiter>& waiter);
  static bool somebody_waits(const Task& task);
  static void note_failure(const Task& task, const std::exception_ptr& error);

  void queue_whole_blob(const std::shared_ptr<FetchLayer>& layer);
  void whole_blob_loop();
  void run_whole_blob(const std::shared_ptr<FetchLayer>& layer);
  std::optional<std::chrono::milliseconds> after_whole_blob_failure(FetchLayer& layer, Attempts& attempts,
                                                                    const std::exception_ptr& error);

  void expire_waiters(Calls& calls);
  void deadline_loop();
  void start_threads();

  const StreamOptions options_;
  Clock& clock_;
  RangeFetcher ranges_;  // before all that may hold pieces

  std::mutex mutex_;
  std::condition_variable decode_changed_;
  std::condition_variable whole_changed_;
  std::condition_variable deadline_changed_;
  Tasks tasks_;
  std::map<Key, BlockTask> blocks_;
  std::set<std::tuple<Priority, std::uint64_t, Key>> to_decode_;
  std::deque<std::shared_ptr<FetchLayer>> whole_queue_;
  std::set<FetchLayer*> whole_layers_;                                                 // queued or streaming
  std::map<std::pair<Clock::TimePoint, Waiter*>, std::shared_ptr<Waiter>> deadlines_;  // of those not called yet
  std::uint64_t next_sequence_ = 0;
  std::uint64_t decoding_bytes_ = 0;  // stream side
  std::atomic<bool> stopping_ = false;
  std::vector<std::jthread> threads_;
  std::vector<std::jthread> whole_threads_;
};

}  // namespace varve::fuse
