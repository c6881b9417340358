#include "fuse/stream/range_fetcher.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/stream/stream_metrics.h"

namespace varve::fuse {
namespace {

// Background work fills the link when nobody waits: one request is transferred while the next is asked for. More are
// made only where the next ones' answers would come too late for that; they would take their share of the link from the
// first reader that comes.
constexpr unsigned kBackgroundRequests = 2;
// What nobody waits for is asked for in parts, and so much of it at a time that the link is busy while the next part is
// asked for: a reader who comes then waits behind no more.
constexpr double kAnswersUnderWay = 2;
constexpr double kSpareSeconds = 0.03;
constexpr std::uint64_t kLeastBulkBytes = 512 << 10;
// While the link's speed is not known; one request at a time would never show it.
constexpr std::uint64_t kFirstBulkBytes = 6 << 20;
constexpr unsigned kFirstBulkRequests = 3;
constexpr std::uint64_t kBulkParts = 3;
constexpr std::chrono::milliseconds kLongestWait{100};  // for clocks that are turned by hand
// Readers of an origin that sent nothing for so long do not keep the background work of others from the link.
constexpr std::chrono::seconds kSilence{2};
// Threads are started as requests need them: enough for so many origins that use all their connections.
constexpr unsigned kBusyOrigins = 8;

}  // namespace

ByteBudget::Hold::Hold(ByteBudget& budget, std::uint64_t bytes) : budget_(&budget), bytes_(bytes) {
  budget_->used_.fetch_add(bytes, std::memory_order_acq_rel);
}

ByteBudget::Hold::Hold(Hold&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), aside_(other.aside_) {}

ByteBudget::Hold& ByteBudget::Hold::operator=(Hold&& other) noexcept {
  if (this == &other) return *this;
  release();
  budget_ = std::exchange(other.budget_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  aside_ = other.aside_;
  return *this;
}

void ByteBudget::Hold::release() {
  if (budget_ == nullptr) return;
  (aside_ ? budget_->aside_ : budget_->used_).fetch_sub(bytes_, std::memory_order_acq_rel);
  std::exchange(budget_, nullptr)->on_release_();
}

void ByteBudget::Hold::set_aside() {
  if (budget_ == nullptr || std::exchange(aside_, true)) return;
  budget_->aside_.fetch_add(bytes_, std::memory_order_acq_rel);
  budget_->used_.fetch_sub(bytes_, std::memory_order_acq_rel);
  budget_->on_release_();
}

RangeFetcher::RangeFetcher(const StreamOptions& options, Clock& clock)
    : options_(options),
      bulk_limit_(std::max(2u, options.connections) - std::max(1u, options.connections / 4)),
      clock_(clock),
      budget_([this] {
        // Taken so that a worker between its look at the budget and its wait is not missed.
        { const std::lock_guard lock(mutex_); }
        changed_.notify_one();
      }) {}

RangeFetcher::~RangeFetcher() { stop(); }

void RangeFetcher::start_threads() {
  if (!threads_.empty()) return;
  // A single connection could not be kept free for readers.
  for (unsigned i = 0; i < std::max(2u, options_.connections); ++i) threads_.emplace_back([this] { work(); });
}

void RangeFetcher::want(std::shared_ptr<PieceSource> source, std::size_t piece, Priority priority, unsigned nth,
                        std::chrono::milliseconds delay) {
  const Key key{source.get(), piece};
  const auto repository = source->repository(nth);
  const auto origin = repository ? repository->origin() : "";
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    start_threads();
    const auto [entry, fresh] = queued_.try_emplace(key);
    auto& queued = entry->second;
    if (fresh) {
      if (repository) origins_[origin].is_local = repository->is_local();
      queued = {.source = std::move(source),
                .origin = &origins_[origin],
                .priority = priority,
                .sequence = next_sequence_++,
                .nth = nth,
                .not_before = clock_.now() + delay,
                .ready = delay.count() == 0};
      if (queued.ready)
        make_ready(key, queued);
      else
        delayed_.emplace(queued.not_before, key);
    } else {
      raise(key, queued, priority);
    }
  }
  changed_.notify_one();
}

RangeFetcher::Together::Together(RangeFetcher& fetcher) : fetcher_(fetcher) {
  const std::lock_guard lock(fetcher_.mutex_);
  ++fetcher_.together_;
}

RangeFetcher::Together::~Together() {
  {
    const std::lock_guard lock(fetcher_.mutex_);
    --fetcher_.together_;
  }
  fetcher_.changed_.notify_one();
}

void RangeFetcher::make_ready(const Key& key, Queued& queued) {
  queued.ready = true;
  queued.origin->ready_of(*queued.source).emplace(queued.priority, queued.sequence, key);
}

void RangeFetcher::raise(const Key& key, Queued& queued, Priority priority) {
  if (queued.priority <= priority) return;
  if (queued.ready) queued.origin->ready_of(*queued.source).erase({queued.priority, queued.sequence, key});
  queued.priority = priority;
  queued.sequence = next_sequence_++;  // behind the readers that wait already
  if (queued.ready) make_ready(key, queued);
}

void RangeFetcher::promote(const PieceSource& source, std::size_t piece, Priority priority) {
  const Key key{&source, piece};
  {
    const std::lock_guard lock(mutex_);
    const auto entry = queued_.find(key);
    if (entry == queued_.end()) return;
    raise(key, entry->second, priority);
  }
  changed_.notify_one();
}

bool RangeFetcher::forget(const PieceSource& source, std::size_t piece) {
  const Key key{&source, piece};
  const std::lock_guard lock(mutex_);
  const auto entry = queued_.find(key);
  if (entry == queued_.end()) return false;
  if (entry->second.ready)
    entry->second.origin->ready_of(source).erase({entry->second.priority, entry->second.sequence, key});
  else
    delayed_.erase({entry->second.not_before, key});
  queued_.erase(entry);
  return true;
}

bool RangeFetcher::idle() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(origins_.begin(), origins_.end(), [](const auto& entry) {
    const auto& origin = entry.second;
    return origin.in_flight[int(Priority::kReader)] == 0 && origin.in_flight[int(Priority::kReadAhead)] == 0 &&
           (origin.ready.empty() || std::get<0>(*origin.ready.begin()) == Priority::kBackground);
  });
}

std::map<std::string, LinkSpeed> RangeFetcher::links() const {
  std::map<std::string, LinkSpeed> links;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, origin] : origins_)
    if (const auto speed = origin.link.speed(); speed.answer_seconds > 0) links.emplace(name, speed);
  return links;
}

void RangeFetcher::stop() {
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    queued_.clear();
    for (auto& [name, origin] : origins_) origin.ready.clear(), origin.ready_small.clear();
    delayed_.clear();
    threads.swap(threads_);
  }
  changed_.notify_all();
  threads.clear();  // joins
}

void RangeFetcher::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_delayed();
    auto request = choose();
    if (!request) {
      ++waiting_threads_;
      if (delayed_.empty() && !look_again_)
        changed_.wait(lock);
      else
        changed_.wait_for(lock, delayed_.empty() ? Clock::TimePoint::duration(kLongestWait)
                                                 : std::clamp<Clock::TimePoint::duration>(
                                                       delayed_.begin()->first - clock_.now(),
                                                       std::chrono::milliseconds(1), kLongestWait));
      --waiting_threads_;
      continue;
    }
    take_from_queue(*request);
    auto& origin = *request->origin;
    const auto priority = request->priority;
    const bool bulk = request->bulk;
    ++origin.in_flight[int(priority)];
    const auto bulk_bytes = bulk ? request->range.length : 0;
    origin.bulk_in_flight += bulk ? 1 : 0;
    origin.bulk_bytes += bulk_bytes;
    origin.last_byte = clock_.now();
    // Somebody has to look at what the other origins want while this thread is at work.
    if (waiting_threads_ == 0 && threads_.size() < std::size_t(options_.connections) * kBusyOrigins)
      threads_.emplace_back([this] { work(); });
    lock.unlock();
    changed_.notify_one();  // there may be work for another thread as well
    run(std::move(*request));
    lock.lock();
    --origin.in_flight[int(priority)];
    origin.bulk_in_flight -= bulk ? 1 : 0;
    origin.bulk_bytes -= bulk_bytes;
    changed_.notify_one();
  }
}

void RangeFetcher::wake_delayed() {
  const auto now = clock_.now();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const auto key = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    make_ready(key, queued_.at(key));
  }
}

std::optional<RangeFetcher::Request> RangeFetcher::choose() {
  look_again_ = false;
  if (together_ > 0) return std::nullopt;
  if (auto request = choose_from(&Origin::ready_small)) return request;
  return choose_from(&Origin::ready);
}

// The first piece of each origin, the most wanted of them first.
std::optional<RangeFetcher::Request> RangeFetcher::choose_from(Ready Origin::*ready) {
  Ready firsts;
  for (auto& [name, origin] : origins_)
    if (!(origin.*ready).empty()) firsts.insert(*(origin.*ready).begin());
  // If the first of an origin cannot start, nothing behind it may overtake: it would take the memory or the connection
  // that the first waits for. Memory is waited for by all origins but those that have nothing on the wire.
  bool memory_is_waited_for = false;
  for (const auto& first : firsts) {
    auto request = merge(std::get<Key>(first));
    const auto may = may_start(request);
    if (may == MayStart::kYes && (!memory_is_waited_for || request.origin->requests() == 0)) return request;
    memory_is_waited_for = memory_is_waited_for || may == MayStart::kNoMemory;
    look_again_ = look_again_ || (may == MayStart::kNoConnection && request.priority == Priority::kBackground);
  }
  return std::nullopt;
}

RangeFetcher::MayStart RangeFetcher::may_start(const Request& request) const {
  const auto priority = request.priority;
  const bool reads = priority == Priority::kReader;
  const auto& origin = *request.origin;
  if (origin.requests() >= std::max(2u, options_.connections)) return MayStart::kNoConnection;
  const bool bulk_is_full =
      !reads && (origin.bulk_in_flight >= bulk_limit_ || link_is_full(origin, request.range.length));
  if (request.source->needs_no_budget()) return bulk_is_full ? MayStart::kNoConnection : MayStart::kYes;
  const auto used = budget_.used();
  // Read-ahead leaves a quarter of the memory to readers, and what is set aside counts for it, too. While nothing else
  // is used it goes on, one request at a time: what is set aside may wait for that very request. So may a piece larger
  // than all of the memory go alone.
  const auto limit = reads ? options_.max_in_flight_bytes : options_.max_in_flight_bytes / 4 * 3;
  const auto in_memory = used + (reads ? 0 : budget_.set_aside());
  const bool others_fetch = std::any_of(origins_.begin(), origins_.end(), [&](const auto& entry) {
    return &entry.second != &origin && entry.second.requests() > 0;
  });
  const bool first_of_its_origin = reads && others_fetch && origin.requests() == 0;
  if (used > 0 && in_memory + request.range.length > limit && !first_of_its_origin) return MayStart::kNoMemory;
  if (bulk_is_full) return MayStart::kNoConnection;
  return priority != Priority::kBackground || background_may_start(origin) ? MayStart::kYes : MayStart::kNoConnection;
}

std::uint64_t RangeFetcher::most_bulk_bytes(const Origin& origin) const {
  if (origin.is_local) return options_.max_in_flight_bytes;
  const auto speed = origin.link.speed();
  if (speed.bytes_per_second == 0) return kFirstBulkBytes;
  const auto seconds = kAnswersUnderWay * speed.answer_seconds + kSpareSeconds;
  return std::max(kLeastBulkBytes, std::uint64_t(speed.bytes_per_second * seconds));
}

bool RangeFetcher::link_is_full(const Origin& origin, std::uint64_t more_bytes) const {
  const auto at_once = origin.link.speed().bytes_per_second == 0 ? kFirstBulkRequests : 1;
  return origin.bulk_in_flight >= at_once && origin.bulk_bytes + more_bytes > most_bulk_bytes(origin);
}

bool RangeFetcher::background_may_start(const Origin& origin) const {
  const auto needed = 1 + origin.link.speed().bytes_under_way() / options_.max_request_bytes;
  const auto most = std::clamp<std::uint64_t>(needed, kBackgroundRequests, std::max(kBackgroundRequests, bulk_limit_));
  if (origin.in_flight[int(Priority::kReader)] > 0 || origin.in_flight[int(Priority::kBackground)] >= most)
    return false;
  return std::all_of(origins_.begin(), origins_.end(), [&](const auto& entry) {
    return entry.second.in_flight[int(Priority::kReader)] == 0 || is_silent(entry.second);
  });
}

bool RangeFetcher::is_silent(const Origin& origin) const { return clock_.now() - origin.last_byte.load() > kSilence; }

RangeFetcher::Request RangeFetcher::merge(Key key) {
  const auto& first = queued_.at(key);
  Request request{.source = first.source,
                  .origin = first.origin,
                  .pieces = {key.second},
                  .range = first.source->piece_range(key.second),
                  .nth = first.nth,
                  .priority = first.priority,
                  .bulk = first.priority != Priority::kReader,
                  .holds = {}};
  // A reader's request takes read-ahead along only if it may count as one of the bulk requests: its connection is busy
  // for longer.
  const auto& origin = *request.origin;
  const auto most_bulk = most_bulk_bytes(origin);
  const bool bulk_allowed = request.bulk || (origin.bulk_in_flight < bulk_limit_ && origin.bulk_bytes < most_bulk);
  const auto most_of_one = std::min(options_.max_request_bytes, most_bulk / kBulkParts);
  extend(request, key, +1, bulk_allowed, most_of_one);
  // Pieces in front delay the first, so they must be wanted as much.
  extend(request, key, -1, false, most_of_one);
  return request;
}

void RangeFetcher::extend(Request& request, Key from, int direction, bool bulk_allowed, std::uint64_t most_bulk) {
  auto entry = queued_.find(from);
  while (true) {
    if (direction < 0 && entry == queued_.begin()) return;
    direction < 0 ? --entry : ++entry;
    if (entry == queued_.end() || entry->first.first != from.first) return;
    const auto& next = entry->second;
    const auto piece = entry->first.second;
    const bool bulk = next.priority != Priority::kReader;
    if (!next.ready || next.nth != request.nth || next.origin != request.origin ||
        (bulk && !bulk_allowed && !request.bulk))
      return;
    if (direction < 0 && next.priority > request.priority) return;
    const auto range = next.source->piece_range(piece);
    const auto begin = std::min(range.offset, request.range.offset);
    const auto end = std::max(range.end(), request.range.end());
    // Neighbours may share a byte; the gap between others is fetched for nothing.
    const auto together = range.length + request.range.length;
    const auto most = bulk || request.priority != Priority::kReader ? most_bulk : options_.max_request_bytes;
    if (end - begin > most || end - begin > together + options_.merge_gap_bytes) return;
    request.range = {.offset = begin, .length = end - begin};
    request.bulk = request.bulk || bulk;
    request.pieces.insert(direction < 0 ? request.pieces.begin() : request.pieces.end(), piece);
  }
}

void RangeFetcher::take_from_queue(Request& request) {
  for (const auto piece : request.pieces) {
    if (!request.source->needs_no_budget())
      request.holds.emplace_back(budget_, request.source->piece_range(piece).length);
    const auto entry = queued_.find({request.source.get(), piece});
    request.origin->ready_of(*request.source).erase({entry->second.priority, entry->second.sequence, entry->first});
    queued_.erase(entry);
  }
}

// What the meter of a link is told of one request, from when it is sent until it is over. Files of this machine are no
// link.
class RangeFetcher::OnTheWire {
 public:
  OnTheWire(LinkMeter& link, const Clock& clock, bool is_local)
      : link_(is_local ? nullptr : &link), clock_(clock), asked_(clock.now()) {
    if (link_ != nullptr) link_->note_request(asked_);
  }
  ~OnTheWire() {
    if (link_ != nullptr) link_->note_end();
  }
  OnTheWire(const OnTheWire&) = delete;
  OnTheWire& operator=(const OnTheWire&) = delete;

  void take(std::uint64_t bytes) {
    if (link_ == nullptr) return;
    const auto now = clock_.now();
    if (!std::exchange(answered_, true)) link_->note_answer(asked_, now);
    link_->note_bytes(bytes, now);
  }

 private:
  LinkMeter* const link_;
  const Clock& clock_;
  const Clock::TimePoint asked_;
  bool answered_ = false;
};

// Deals the bytes of one range out to its pieces, each as soon as it is whole.
class RangeFetcher::Transfer {
 public:
  Transfer(RangeFetcher& fetcher, Request& request)
      : fetcher_(fetcher), request_(request), at_(request.range.offset), parts_(request.pieces.size()) {
    for (std::size_t i = 0; i < request.holds.size(); ++i) parts_[i].hold = std::move(request.holds[i]);
  }

  void take(ByteView bytes) {
    if (fetcher_.stopping_) throw Cancelled("fetching is stopped");
    request_.source->count_bytes(bytes.size(), from_here_);
    request_.origin->last_byte = fetcher_.clock_.now();
    if (bytes.size() > request_.range.end() - at_)
      fail<CorruptData>("{} at {}: more bytes than the {} asked for", request_.source->blob().digest.to_string(),
                        request_.range.offset, request_.range.length);
    for (auto i = done_; i < parts_.size(); ++i) {
      const auto range = request_.source->piece_range(request_.pieces[i]);
      if (range.offset >= at_ + bytes.size()) break;
      const auto from = std::max(range.offset, at_);
      const auto to = std::min(range.end(), at_ + bytes.size());
      if (from >= to) continue;
      if (parts_[i].bytes.empty()) parts_[i].bytes.reserve(range.length);
      append(parts_[i].bytes, bytes.subspan(from - at_, to - from));
    }
    at_ += bytes.size();
    deliver();
  }

  void deliver() {
    while (done_ < parts_.size() && request_.source->piece_range(request_.pieces[done_]).end() <= at_) {
      const auto i = done_++;
      request_.source->on_piece(request_.pieces[i], request_.nth, std::move(parts_[i]));
    }
  }

  void fail_rest(const std::exception_ptr& error) {
    while (done_ < parts_.size()) {
      parts_[done_] = {};
      request_.source->on_failure(request_.pieces[done_++], request_.nth, error);
    }
  }
  bool whole() const { return done_ == parts_.size(); }
  void comes_from(const oci::Repository& repository) { from_here_ = repository.is_local(); }

 private:
  RangeFetcher& fetcher_;
  Request& request_;
  std::uint64_t at_;  // next byte of the blob
  std::size_t done_ = 0;
  bool from_here_ = false;
  std::vector<FetchedPiece> parts_;
};

void RangeFetcher::run(Request request) {
  std::exception_ptr error;
  std::optional<Transfer> transfer;
  try {
    transfer.emplace(*this, request);
    transfer->deliver();  // pieces of no bytes
    const auto repository = request.source->repository(request.nth);
    if (!repository) fail<NotFound>("{}: no repository to fetch it from", request.source->blob().digest.to_string());
    transfer->comes_from(*repository);
    if (!transfer->whole()) {
      request.source->count_request();
      const TimedRequest timed(options_.metrics.get(), *repository);
      OnTheWire wire(request.origin->link, clock_, repository->is_local());
      repository->read_blob(request.source->blob(), request.range, [&](ByteView bytes) {
        wire.take(bytes.size());
        transfer->take(bytes);
      });
    }
    if (!transfer->whole())
      fail<TemporaryError>("{}: {} at {}: the transfer ended too early", repository->name(),
                           request.source->blob().digest.to_string(), request.range.offset);
  } catch (...) {
    error = std::current_exception();
  }
  if (!error) return;
  if (transfer) return transfer->fail_rest(error);
  for (const auto piece : request.pieces) request.source->on_failure(piece, request.nth, error);
}

}  // namespace varve::fuse
