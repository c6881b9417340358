#pragma once
// Brings pieces of blobs from repositories: neighbours in one range request, waiting readers first, several requests at
// a time, memory bounded. It knows nothing of what the bytes mean; whoever wants them checks them.
//
// Each origin (a registry's host) has connections of its own, so that one which is silent or drips keeps nobody waiting
// but its own readers. Memory is shared: an origin that has nothing on the wire may always send one request.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/oci/repository.h"
#include "fuse/stream/layer_stream.h"
#include "fuse/stream/link_meter.h"

namespace varve::fuse {

// Counts bytes of fetched and decoded data that are in memory. Safe to use from any thread.
class ByteBudget {
 public:
  // A share of the budget, given back when it dies.
  class Hold {
   public:
    Hold() = default;
    Hold(ByteBudget& budget, std::uint64_t bytes);
    Hold(Hold&& other) noexcept;
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { release(); }
    void release();
    // For bytes that lie until something else has been fetched: that must not wait for them.
    void set_aside();

   private:
    ByteBudget* budget_ = nullptr;
    std::uint64_t bytes_ = 0;
    bool aside_ = false;
  };

  explicit ByteBudget(std::function<void()> on_release) : on_release_(std::move(on_release)) {}
  std::uint64_t used() const { return used_.load(std::memory_order_acquire); }  // without what is set aside
  std::uint64_t set_aside() const { return aside_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint64_t> used_ = 0;
  std::atomic<std::uint64_t> aside_ = 0;
  std::function<void()> on_release_;
};

struct FetchedPiece {
  Bytes bytes;
  ByteBudget::Hold hold;
};

// A blob cut into pieces. The calls come from download threads, must not block, and may call want().
class PieceSource {
 public:
  virtual ~PieceSource() = default;
  virtual const oci::Descriptor& blob() const = 0;
  virtual ByteRange piece_range(
      std::size_t piece) const = 0;  // in the blob, inside it; pieces of ascending number ascend
  virtual std::size_t pieces() const = 0;
  // The repository for the nth attempt; null if there is none at all.
  virtual std::shared_ptr<oci::Repository> repository(unsigned nth) const = 0;
  // Small pieces that others in memory wait for, which could otherwise wait for each other for ever.
  virtual bool needs_no_budget() const { return false; }
  virtual void count_request() = 0;
  virtual void count_bytes(std::uint64_t bytes, bool from_here) = 0;

  virtual void on_piece(std::size_t piece, unsigned nth, FetchedPiece fetched) noexcept = 0;
  virtual void on_failure(std::size_t piece, unsigned nth, std::exception_ptr error) noexcept = 0;
};

// Safe to use from any thread.
class RangeFetcher {
 public:
  RangeFetcher(const StreamOptions& options, Clock& clock);
  ~RangeFetcher();

  // Queues a piece; a piece that is queued already is promoted if this priority is higher. on_piece or on_failure
  // follows exactly once for each piece that was queued, except after stop().
  void want(std::shared_ptr<PieceSource> source, std::size_t piece, Priority priority, unsigned nth = 0,
            std::chrono::milliseconds delay = std::chrono::milliseconds(0));
  // No request starts while one lives: what is wanted meanwhile is merged as if it had come at once.
  class Together {
   public:
    explicit Together(RangeFetcher& fetcher);
    ~Together();
    Together(const Together&) = delete;
    Together& operator=(const Together&) = delete;

   private:
    RangeFetcher& fetcher_;
  };
  // Raises the priority of a piece that is still queued; else nothing.
  void promote(const PieceSource& source, std::size_t piece, Priority priority);
  // Takes a piece back that is still queued; false if it is not.
  bool forget(const PieceSource& source, std::size_t piece);
  // True while nothing but background work is queued or on the wire.
  bool idle() const;
  // Of each origin on a network, by its name.
  std::map<std::string, LinkSpeed> links() const;

  ByteBudget& budget() { return budget_; }
  // Ends transfers at their next byte, forgets what is queued, ends the threads.
  void stop();

 private:
  using Key = std::pair<const PieceSource*, std::size_t>;
  using Ready = std::set<std::tuple<Priority, std::uint64_t, Key>>;
  // What is wanted of one host, and what is on the wire.
  struct Origin {
    Ready ready;
    Ready ready_small;           // of sources that need no budget: never behind a piece that waits for memory
    unsigned in_flight[3] = {};  // requests, by Priority
    unsigned bulk_in_flight = 0;
    std::uint64_t bulk_bytes = 0;  // asked for by those
    bool is_local = false;
    std::atomic<Clock::TimePoint> last_byte{Clock::TimePoint()};  // or the last request's start
    LinkMeter link;

    unsigned requests() const { return in_flight[0] + in_flight[1] + in_flight[2]; }
    Ready& ready_of(const PieceSource& source) { return source.needs_no_budget() ? ready_small : ready; }
  };
  struct Queued {
    std::shared_ptr<PieceSource> source;
    Origin* origin = nullptr;
    Priority priority = Priority::kBackground;
    std::uint64_t sequence = 0;
    unsigned nth = 0;
    Clock::TimePoint not_before;
    bool ready = false;  // in one of the ready sets, else in delayed_
  };
  struct Request {
    std::shared_ptr<PieceSource> source;
    Origin* origin = nullptr;
    std::vector<std::size_t> pieces;  // ascending
    ByteRange range;                  // in the blob
    unsigned nth = 0;
    Priority priority = Priority::kReader;  // of the piece it was made for
    bool bulk = false;                      // carries a piece that no reader waits for
    std::vector<ByteBudget::Hold> holds;    // one per piece, taken when the request starts
  };
  class Transfer;
  class OnTheWire;

  void start_threads();
  void work();
  void wake_delayed();
  void make_ready(const Key& key, Queued& queued);
  void raise(const Key& key, Queued& queued, Priority priority);
  std::optional<Request> choose();
  std::optional<Request> choose_from(Ready Origin::*ready);
  // kNoMemory holds for all origins, kNoConnection for this one.
  enum class MayStart { kYes, kNoConnection, kNoMemory };
  MayStart may_start(const Request& request) const;
  bool background_may_start(const Origin& origin) const;
  std::uint64_t most_bulk_bytes(const Origin& origin) const;
  bool link_is_full(const Origin& origin, std::uint64_t more_bytes) const;
  bool is_silent(const Origin& origin) const;
  Request merge(Key key);
  void extend(Request& request, Key from, int direction, bool bulk_allowed, std::uint64_t most_bulk);
  void take_from_queue(Request& request);
  void run(Request request);

  const StreamOptions options_;
  // Requests to one origin that carry pieces nobody waits for: the rest of its connections is kept for readers.
  const unsigned bulk_limit_;
  Clock& clock_;
  ByteBudget budget_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Queued> queued_;           // neighbours in a blob are neighbours here
  std::map<std::string, Origin> origins_;  // never shrinks: as many as registries were met
  std::set<std::pair<Clock::TimePoint, Key>> delayed_;
  std::uint64_t next_sequence_ = 0;
  unsigned together_ = 0;
  unsigned waiting_threads_ = 0;
  bool look_again_ = false;  // something may start once an origin is silent
  std::atomic<bool> stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace varve::fuse
