#pragma once
// Brings spans: each is fetched once however many wait for it, decoded and verified; then those who read are answered
// from the decoded bytes, the span is stored, and those who only want it in the store are told.
//
// A span under way is a Task, from the first who wants it (find_or_begin_task) to its end (end_task). By then the span
// is readable, or its failure is final:
//
//      begin --the store has unchecked bytes--> kDecoding --they are wrong--> download
//        |                                         ^  |
//        |  download_blob, download_window         |  | decoded or checked: answer_readers, SpanStore::put, end_task
//        '----> kFetching --blob and window here---'  | wrong bytes: kFetching again, from another source or later,
//        |         |                                  |              until Attempts gives up: end_task
//        |         '-- nobody waits any more: forgotten while it is still queued (forget_unwanted_tasks)
//        |  A span that follows another needs the end of that, too: from the store, or from a task of its own, which
//        |  hands it over (give_to_follower) or takes it along when it fails.
//        '----> kWholeBlob: a layer that must be decoded from its start; its spans are answered as the stream passes
//
// A Waiter is one fetch():
//
//      asking --for all that is missing--> waiting --spans_left is 0--> over: `done` is called, once
//         '------------- a span fails, the deadline passes, stop() ------^
//
// and never over while bytes are copied into its buffer (`copies`; who asks counts as one).
//
// A layer of spans needs no state here. One that must be decoded from its start is idle, or queued (whole_queue_), or
// streaming; after a stream it is queued again if spans were asked for behind the place where it was.
//
// Locks: mutex_ is held for looks at tables only, never over I/O, decoding, copying or a call of Done. While it is held
// those of RangeFetcher, SourceList and WindowStore may be taken, never the other way round.
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
#include <span>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/codec/span_decoder.h"
#include "fuse/stream/attempts.h"
#include "fuse/stream/fetch_layer.h"
#include "fuse/stream/layer_stream.h"
#include "fuse/stream/range_fetcher.h"

namespace varve::fuse {

// A reader's buffer: all of it lies in the stream.
struct ReaderBuffer {
  std::uint64_t stream_offset = 0;
  std::span<std::byte> into = {};
};

// Safe to use from any thread. No thread runs before the first span is wanted.
class SpanFetcher {
 public:
  SpanFetcher(const StreamOptions& options, Clock& clock);
  ~SpanFetcher();  // as stop()

  // Makes spans readable that the store lacked a moment ago (ascending, at least one), and fills their part of the
  // buffer if there is one. `done` is called once, as LayerStream says. `ahead`: the spans from the first up to the
  // second come with the same request, if they can; nobody waits for them.
  using Ahead = std::pair<std::size_t, std::size_t>;
  void fetch(const std::shared_ptr<FetchLayer>& layer, std::vector<std::uint32_t> missing, Priority priority,
             LayerStream::Done done, const ReaderBuffer& buffer = {}, Ahead ahead = {});
  // Fetches spans for which nobody waits; what fails is left.
  void fetch_ahead(const std::shared_ptr<FetchLayer>& layer, std::size_t first, std::size_t last, Priority priority);

  // Of the reader of a layer that waits longest, and what it waits for; also of who fetches ahead, if that fails.
  struct Wait {
    double seconds = 0;
    std::string source;  // Repository::name(); "" if nobody waits for a source
  };
  Wait longest_wait(const FetchLayer& layer);
  // Of any layer: a reader waits, or what was wanted ahead of one.
  bool somebody_waits();
  bool busy();  // a span is under way
  std::map<std::string, LinkSpeed> links() const { return ranges_.links(); }

  // Fails all who wait with Cancelled, then ends all threads.
  void stop();

 private:
  class BlobPieces;
  class WindowPieces;

  // One fetch(). Guarded by mutex_, but for the content of the buffer.
  struct Waiter {
    std::shared_ptr<FetchLayer> layer;
    ReaderBuffer buffer;  // of a reader; else empty
    Priority priority = Priority::kReader;
    std::size_t first = 0, last = 0;  // spans
    std::size_t spans_left = 0;       // that were asked for
    std::size_t copies = 1;           // under way into the buffer; who begins it counts until it has asked for all
    std::exception_ptr failure;
    LayerStream::Done done;  // empty once called
    Clock::TimePoint deadline;
    std::string last_error;

    bool reads() const { return !buffer.into.empty(); }
    bool waits() const { return done && !failure; }
  };
  using Waiters = std::vector<std::shared_ptr<Waiter>>;

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
    bool needs_before = false;    // the span that it follows has a task, whose end is waited for
    Bytes before;                 // the end of that span, once it was handed over
    std::optional<FetchedPiece> compressed;
    unsigned compressed_source = 0;
    Attempts blob_attempts;
    Attempts window_attempts;
    Waiters waiters;
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
  };
  using Calls = std::vector<Call>;
  static void carry_out(Calls calls);

  static ReaderBuffer part_of(const ReaderBuffer& buffer, ByteRange span);
  // Returns those that are here by now.
  std::vector<std::uint32_t> ask_for(const std::shared_ptr<Waiter>& waiter, const std::vector<std::uint32_t>& missing,
                                     Ahead ahead);
  void begin_ahead(const std::shared_ptr<FetchLayer>& layer, Ahead ahead, Priority priority);
  void make_piece_sources(const std::shared_ptr<FetchLayer>& layer);
  Tasks::iterator find_or_begin_task(const std::shared_ptr<FetchLayer>& layer, std::size_t span, Priority priority);
  void promote(Tasks::iterator task, Priority priority);
  void need_before(Tasks::iterator task);
  Tasks::iterator follower_of(Tasks::const_iterator task);
  void give_to_follower(Tasks::iterator task, ByteView stream);
  std::optional<Bytes> bytes_before(Tasks::iterator task);
  void check_or_download(Tasks::iterator task);
  void download(Tasks::iterator task);
  void download_blob(Tasks::iterator task, std::chrono::milliseconds delay);
  void download_window(Tasks::iterator task, std::chrono::milliseconds delay);
  void decode_if_downloaded(Tasks::iterator task);
  void queue_to_decode(Tasks::iterator task);

  void on_blob_piece(FetchLayer& layer, std::size_t span, unsigned source, FetchedPiece fetched);
  void on_blob_failure(FetchLayer& layer, std::size_t span, const std::exception_ptr& error);
  void on_window_block(FetchLayer& layer, std::size_t block, unsigned source, const FetchedPiece& fetched);
  void on_window_failure(FetchLayer& layer, std::size_t block, const std::exception_ptr& error);

  void decode_loop();
  bool may_decode() const;
  void decode(Tasks::iterator task, codec::SpanDecoder& decoder, Bytes& stream);
  void on_decode_failure(Tasks::iterator task, const std::exception_ptr& error);
  // Comes back with the lock, when no reader of the span is left.
  void answer_readers(std::unique_lock<std::mutex>& lock, Tasks::iterator task, ByteView stream);
  void end_task(Tasks::iterator task, const std::exception_ptr& error, bool on_disk, Calls& calls);
  void end_if_over(Waiter& waiter, Calls& calls);
  void fail_waiter(Waiter& waiter, const std::exception_ptr& error, Calls& calls);
  void forget_unwanted_tasks(const Waiter& waiter);
  void set_deadline(const std::shared_ptr<Waiter>& waiter);
  bool somebody_waits(Tasks::const_iterator task);
  void note_failure(Tasks::const_iterator task, const std::exception_ptr& error);
  std::string source_of(Tasks::const_iterator task) const;

  void queue_whole_blob(const std::shared_ptr<FetchLayer>& layer);
  void on_whole_blob_span(const std::shared_ptr<FetchLayer>& layer, std::size_t span, ByteView stream);
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
