#include "fuse/stream/span_fetcher.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/journal.h"
#include "core/base/log.h"
#include "core/base/threads/parallel.h"
#include "core/index/span_reader.h"
#include "fuse/stream/whole_blob.h"

namespace varve::fuse {
namespace {

constexpr auto kNow = std::chrono::milliseconds(0);
constexpr const char* kStopped = ": fetching is stopped";
constexpr std::size_t kKeptBufferBytes = 8 << 20;  // a larger decode buffer is given back after use

std::string place_of(const FetchLayer& layer, std::size_t span) {
  return fmt::format("layer {} at stream offset {}", layer.map->layer_digest.to_string(),
                     layer.map->spans[span].stream_range.offset);
}

}  // namespace

// The layer blob, cut into spans. Lives in the layer, so it may refer to it.
class SpanFetcher::BlobPieces final : public PieceSource {
 public:
  BlobPieces(SpanFetcher& fetcher, FetchLayer& layer) : fetcher_(fetcher), layer_(layer) {}
  const oci::Descriptor& blob() const override { return layer_.blob; }
  ByteRange piece_range(std::size_t span) const override { return layer_.map->spans[span].compressed_range; }
  std::size_t pieces() const override { return layer_.map->spans.size(); }
  std::shared_ptr<oci::Repository> repository(unsigned nth) const override { return layer_.blob_sources.nth(nth); }
  void count_request() override { layer_.counters.requests.fetch_add(1, std::memory_order_relaxed); }
  void count_bytes(std::uint64_t bytes, bool from_here) override { layer_.counters.count_bytes(bytes, from_here); }
  void on_piece(std::size_t span, unsigned nth, FetchedPiece fetched) noexcept override {
    fetcher_.on_blob_piece(layer_, span, nth, std::move(fetched));
  }
  void on_failure(std::size_t span, unsigned, std::exception_ptr error) noexcept override {
    fetcher_.on_blob_failure(layer_, span, error);
  }

 private:
  SpanFetcher& fetcher_;
  FetchLayer& layer_;
};

// The windows blob, cut into blocks.
class SpanFetcher::WindowPieces final : public PieceSource {
 public:
  WindowPieces(SpanFetcher& fetcher, FetchLayer& layer) : fetcher_(fetcher), layer_(layer) {
    if (layer.windows_blob) blob_ = *layer.windows_blob;
  }
  const oci::Descriptor& blob() const override { return blob_; }
  ByteRange piece_range(std::size_t block) const override { return layer_.windows.block_range(block); }
  std::size_t pieces() const override { return layer_.windows.blocks(); }
  std::shared_ptr<oci::Repository> repository(unsigned nth) const override { return layer_.window_sources.nth(nth); }
  bool needs_no_budget() const override { return true; }
  void count_request() override { layer_.counters.requests.fetch_add(1, std::memory_order_relaxed); }
  void count_bytes(std::uint64_t bytes, bool from_here) override { layer_.counters.count_bytes(bytes, from_here); }
  void on_piece(std::size_t block, unsigned nth, FetchedPiece fetched) noexcept override {
    fetcher_.on_window_block(layer_, block, nth, fetched);
  }
  void on_failure(std::size_t block, unsigned, std::exception_ptr error) noexcept override {
    fetcher_.on_window_failure(layer_, block, error);
  }

 private:
  SpanFetcher& fetcher_;
  FetchLayer& layer_;
  oci::Descriptor blob_;
};

SpanFetcher::SpanFetcher(const StreamOptions& options, Clock& clock)
    : options_(options), clock_(clock), ranges_(options, clock) {}

SpanFetcher::~SpanFetcher() { stop(); }

void SpanFetcher::carry_out(Calls calls) {
  for (auto& call : calls) {
    try {
      call.done(std::move(call.error));
    } catch (const std::exception& error) {
      log::error("a reader's callback failed: {}", error.what());
    }
  }
}

ReaderBuffer SpanFetcher::part_of(const ReaderBuffer& buffer, ByteRange span) {
  const auto from = std::max(span.offset, buffer.stream_offset);
  const auto to = std::min(span.end(), buffer.stream_offset + buffer.into.size());
  return {.stream_offset = from, .into = buffer.into.subspan(from - buffer.stream_offset, to - from)};
}

void SpanFetcher::fetch(const std::shared_ptr<FetchLayer>& layer, std::vector<std::uint32_t> missing, Priority priority,
                        LayerStream::Done done, const ReaderBuffer& buffer, Ahead ahead) {
  auto waiter = std::make_shared<Waiter>();
  waiter->layer = layer;
  waiter->buffer = buffer;
  waiter->priority = priority;
  waiter->first = missing.front();
  waiter->last = missing.back() + 1;
  waiter->done = std::move(done);
  std::exception_ptr trouble;
  try {
    while (!missing.empty()) {
      const auto here = ask_for(waiter, missing, std::exchange(ahead, {}));
      missing.clear();
      if (!waiter->reads()) break;
      for (const auto span : here) {
        const auto part = part_of(buffer, layer->map->spans[span].stream_range);
        if (!layer->store.read(part.stream_offset, part.into).empty()) missing.push_back(span);
      }
    }
  } catch (...) {
    trouble = std::current_exception();
  }
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    --waiter->copies;
    if (stopping_) trouble = std::make_exception_ptr(Cancelled(place_of(*layer, waiter->first) + kStopped));
    if (trouble) fail_waiter(*waiter, trouble, calls);
    end_if_over(*waiter, calls);
  }
  carry_out(std::move(calls));
}

std::vector<std::uint32_t> SpanFetcher::ask_for(const std::shared_ptr<Waiter>& waiter,
                                                const std::vector<std::uint32_t>& missing, Ahead ahead) {
  std::vector<std::uint32_t> here;
  const std::lock_guard lock(mutex_);
  const RangeFetcher::Together together(ranges_);
  make_piece_sources(waiter->layer);
  for (const auto span : missing) {
    if (stopping_ || !waiter->waits()) break;
    // A span becomes readable before its task ends under our lock, so one that has neither must be fetched.
    if (!tasks_.contains({waiter->layer.get(), span}) && waiter->layer->store.touch_if_readable(span)) {
      here.push_back(span);
    } else {
      find_or_begin_task(waiter->layer, span, waiter->priority)->second.waiters.push_back(waiter);
      ++waiter->spans_left;
    }
  }
  if (waiter->spans_left > 0 && waiter->waits() && waiter->deadline == Clock::TimePoint()) set_deadline(waiter);
  begin_ahead(waiter->layer, ahead, Priority::kReadAhead);
  return here;
}

void SpanFetcher::fetch_ahead(const std::shared_ptr<FetchLayer>& layer, std::size_t first, std::size_t last,
                              Priority priority) {
  const std::lock_guard lock(mutex_);
  const RangeFetcher::Together together(ranges_);
  make_piece_sources(layer);
  begin_ahead(layer, {first, last}, priority);
}

void SpanFetcher::begin_ahead(const std::shared_ptr<FetchLayer>& layer, Ahead ahead, Priority priority) {
  // On a full disk it would only push what readers need out of memory.
  if (layer->store.disk_full()) return;
  for (auto span = ahead.first; span < ahead.second && !stopping_; ++span)
    if (!layer->store.touch_if_readable(span)) find_or_begin_task(layer, span, priority);
}

void SpanFetcher::make_piece_sources(const std::shared_ptr<FetchLayer>& layer) {
  if (layer->blob_pieces) return;
  layer->blob_pieces = std::make_unique<BlobPieces>(*this, *layer);
  layer->window_pieces = std::make_unique<WindowPieces>(*this, *layer);
}

SpanFetcher::Tasks::iterator SpanFetcher::find_or_begin_task(const std::shared_ptr<FetchLayer>& layer, std::size_t span,
                                                             Priority priority) {
  const auto [task, fresh] = tasks_.try_emplace(Key{layer.get(), span});
  if (!fresh) {
    promote(task, priority);
    return task;
  }
  start_threads();
  task->second.layer = layer;
  task->second.priority = priority;
  task->second.sequence = next_sequence_++;
  task->second.blob_attempts = Attempts(layer->blob_sources.preferred());
  task->second.window_attempts = Attempts(layer->window_sources.preferred());
  layer->counters.fetching.fetch_add(1, std::memory_order_relaxed);
  check_or_download(task);
  return task;
}

void SpanFetcher::promote(Tasks::iterator task, Priority priority) {
  auto& [key, state] = *task;
  if (state.priority <= priority) return;
  if (state.queued_to_decode) {
    to_decode_.erase({state.priority, state.sequence, key});
    to_decode_.emplace(priority, state.sequence, key);
  }
  state.priority = priority;
  if (state.needs_before) promote(tasks_.find({key.first, key.second - 1}), priority);  // first, as it is needed first
  ranges_.promote(*state.layer->blob_pieces, key.second, priority);
  if (state.missing_blocks == 0) return;
  for (const auto block : state.layer->windows.missing_blocks(state.layer->map->record_range(key.second)))
    ranges_.promote(*state.layer->window_pieces, block, priority);
}

void SpanFetcher::check_or_download(Tasks::iterator task) {
  if (task->second.layer->store.state(task->first.second) == SpanStore::State::kUnchecked) {
    task->second.check_first = true;
    queue_to_decode(task);
  } else {
    download(task);
  }
}

void SpanFetcher::download(Tasks::iterator task) {
  if (task->second.layer->map->format == index::LayerFormat::kZstdSingle) {
    task->second.stage = Task::Stage::kWholeBlob;
    queue_whole_blob(task->second.layer);
    return;
  }
  need_before(task);
  download_window(task, kNow);
  download_blob(task, kNow);
}

void SpanFetcher::download_blob(Tasks::iterator task, std::chrono::milliseconds delay) {
  auto& state = task->second;
  state.stage = Task::Stage::kFetching;
  state.compressed.reset();
  ranges_.want(std::shared_ptr<PieceSource>(state.layer, state.layer->blob_pieces.get()), task->first.second,
               state.priority, state.blob_attempts.source(), delay);
}

void SpanFetcher::download_window(Tasks::iterator task, std::chrono::milliseconds delay) {
  auto& [key, state] = *task;
  state.stage = Task::Stage::kFetching;
  const auto missing = state.layer->windows.missing_blocks(state.layer->map->record_range(key.second));
  state.missing_blocks = unsigned(missing.size());
  for (const auto block : missing) {
    const auto [entry, fresh] = blocks_.try_emplace(Key{key.first, block});
    if (fresh) entry->second.attempts = Attempts(state.window_attempts.source());
    entry->second.priority = std::min(fresh ? state.priority : entry->second.priority, state.priority);
    entry->second.spans.push_back(key.second);
    if (fresh)
      ranges_.want(std::shared_ptr<PieceSource>(state.layer, state.layer->window_pieces.get()), block, state.priority,
                   state.window_attempts.source(), delay);
    else
      ranges_.promote(*state.layer->window_pieces, block, state.priority);
  }
}

void SpanFetcher::decode_if_downloaded(Tasks::iterator task) {
  auto& state = task->second;
  if (state.stage != Task::Stage::kFetching || !state.compressed || state.missing_blocks != 0) return;
  // What it waits for must not wait for the memory that it holds.
  if (state.needs_before)
    state.compressed->hold.set_aside();
  else
    queue_to_decode(task);
}

void SpanFetcher::queue_to_decode(Tasks::iterator task) {
  task->second.stage = Task::Stage::kDecoding;
  task->second.queued_to_decode = true;
  to_decode_.emplace(task->second.priority, task->second.sequence, task->first);
  decode_changed_.notify_one();
}

void SpanFetcher::on_blob_piece(FetchLayer& layer, std::size_t span, unsigned source, FetchedPiece fetched) {
  const std::lock_guard lock(mutex_);
  const auto task = tasks_.find({&layer, span});
  if (task == tasks_.end() || task->second.stage != Task::Stage::kFetching) return;  // nobody wants it any more
  task->second.compressed = std::move(fetched);
  task->second.compressed_source = source;
  decode_if_downloaded(task);
}

void SpanFetcher::on_blob_failure(FetchLayer& layer, std::size_t span, const std::exception_ptr& error) {
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    const auto task = tasks_.find({&layer, span});
    if (task == tasks_.end() || task->second.stage != Task::Stage::kFetching || stopping_) return;
    note_failure(task, error);
    if (const auto delay = task->second.blob_attempts.after(error, layer.blob_sources.size(), somebody_waits(task),
                                                            layer.blob_sources.copies()))
      download_blob(task, *delay);
    else
      end_task(task, error, false, calls);
  }
  carry_out(std::move(calls));
}

void SpanFetcher::on_window_block(FetchLayer& layer, std::size_t block, unsigned source, const FetchedPiece& fetched) {
  try {
    layer.windows.put(block, fetched.bytes);
  } catch (...) {
    const auto error = std::current_exception();
    if (layer.windows_blob)
      layer.window_sources.note_wrong_bytes(source, *layer.windows_blob, layer.window_pieces->piece_range(block),
                                            error);
    return on_window_failure(layer, block, error);
  }
  layer.window_sources.prefer(source);
  const std::lock_guard lock(mutex_);
  const auto entry = blocks_.find({&layer, block});
  if (entry == blocks_.end()) return;
  const auto spans = std::move(entry->second.spans);
  blocks_.erase(entry);
  for (const auto span : spans) {
    const auto task = tasks_.find({&layer, span});
    if (task == tasks_.end() || task->second.stage != Task::Stage::kFetching) continue;
    // Counted anew: the task may be another than the one that asked for the block.
    task->second.missing_blocks = unsigned(layer.windows.missing_blocks(layer.map->record_range(span)).size());
    decode_if_downloaded(task);
  }
}

void SpanFetcher::on_window_failure(FetchLayer& layer, std::size_t block, const std::exception_ptr& error) {
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = blocks_.find({&layer, block});
    if (entry == blocks_.end() || stopping_) return;
    bool wanted = false;
    std::shared_ptr<FetchLayer> owner;
    for (const auto span : entry->second.spans) {
      const auto task = tasks_.find({&layer, span});
      if (task == tasks_.end()) continue;
      owner = task->second.layer;
      note_failure(task, error);
      wanted = wanted || somebody_waits(task);
    }
    auto& attempts = entry->second.attempts;
    const auto delay = attempts.after(error, layer.window_sources.size(), wanted, layer.window_sources.copies());
    if (delay && owner) {
      ranges_.want(std::shared_ptr<PieceSource>(owner, layer.window_pieces.get()), block, entry->second.priority,
                   attempts.source(), *delay);
      return;
    }
    const auto spans = std::move(entry->second.spans);
    blocks_.erase(entry);
    for (const auto span : spans)
      if (const auto task = tasks_.find({&layer, span}); task != tasks_.end() && task->second.missing_blocks > 0)
        end_task(task, error, false, calls);
  }
  carry_out(std::move(calls));
}

void SpanFetcher::decode_loop() {
  codec::SpanDecoder decoder;
  Bytes stream;
  std::unique_lock lock(mutex_);
  while (true) {
    decode_changed_.wait(lock, [&] { return stopping_ || may_decode(); });
    if (stopping_) return;
    const auto task = tasks_.find(std::get<Key>(*to_decode_.begin()));
    to_decode_.erase(to_decode_.begin());
    task->second.queued_to_decode = false;
    const auto bytes = task->second.layer->map->spans[task->first.second].stream_range.length;
    decoding_bytes_ += bytes;
    lock.unlock();
    decode(task, decoder, stream);  // the task stays: only its decoder ends a task of this stage
    if (stream.capacity() > kKeptBufferBytes) Bytes().swap(stream);
    lock.lock();
    decoding_bytes_ -= bytes;
    decode_changed_.notify_all();
  }
}

// Highly compressible data makes spans of up to 1 GiB of stream: of those one at a time.
bool SpanFetcher::may_decode() const {
  if (to_decode_.empty()) return false;
  const auto& [layer, span] = std::get<Key>(*to_decode_.begin());
  return decoding_bytes_ == 0 ||
         decoding_bytes_ + layer->map->spans[span].stream_range.length <= options_.max_in_flight_bytes;
}

void SpanFetcher::decode(Tasks::iterator task, codec::SpanDecoder& decoder, Bytes& stream) {
  const auto span_number = task->first.second;
  auto& state = task->second;
  const auto layer = state.layer;
  const auto& span = layer->map->spans[span_number];
  const ByteBudget::Hold buffer(ranges_.budget(), span.stream_range.length);
  bool on_disk = false;
  try {
    stream.resize(span.stream_range.length);
    if (std::exchange(state.check_first, false)) {
      const auto digest = layer->digest_of_span(span_number);
      on_disk = digest && layer->store.check(span_number, *digest, stream);
      if (!on_disk) {
        const std::lock_guard lock(mutex_);
        return download(task);
      }
    } else {
      const auto before = bytes_before(task);
      if (!before) return;
      const auto record = layer->windows.load(layer->map->record_range(span_number));
      index::decode_span(*layer->map, span_number,
                         {.compressed = state.compressed->bytes, .record = record, .before = *before}, stream, decoder);
      layer->counters.decoded_bytes.fetch_add(stream.size(), std::memory_order_relaxed);
      layer->blob_sources.prefer(state.compressed_source);
    }
  } catch (...) {
    return on_decode_failure(task, std::current_exception());
  }
  std::unique_lock lock(mutex_);
  give_to_follower(task, stream);
  answer_readers(lock, task, stream);
  lock.unlock();
  if (!on_disk) on_disk = layer->store.put(span_number, stream);
  Calls calls;
  lock.lock();
  answer_readers(lock, task, stream);  // who has come in the meantime
  give_to_follower(task, stream);
  end_task(task, nullptr, on_disk, calls);
  lock.unlock();
  carry_out(std::move(calls));
}

void SpanFetcher::on_decode_failure(Tasks::iterator task, const std::exception_ptr& error) {
  const auto layer = task->second.layer;
  const auto span_number = task->first.second;
  const auto& span = layer->map->spans[span_number];
  const auto record = layer->map->record_range(span_number);
  bool window_is_wrong = false;
  try {
    std::rethrow_exception(error);
  } catch (const index::CorruptSpan& corrupt) {
    window_is_wrong =
        corrupt.part() == index::CorruptSpan::Part::kWindowOrStream && (record.length > 0 || span.follows);
  } catch (...) {
  }
  // What the disk has of the record, or of the span in front, may have changed: it is dropped then. Blocks without
  // digests go if nothing else can be wrong.
  if (layer->windows.damaged(record)) window_is_wrong = true;
  if (window_is_wrong) {
    layer->windows.drop(record);
    if (span.follows) layer->verify_span(span_number - 1);
  } else {
    layer->blob_sources.note_wrong_bytes(task->second.compressed_source, layer->blob, span.compressed_range, error);
  }
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    auto& state = task->second;
    note_failure(task, error);
    auto& attempts = window_is_wrong ? state.window_attempts : state.blob_attempts;
    const auto& sources = window_is_wrong ? layer->window_sources : layer->blob_sources;
    const auto delay = attempts.after(error, sources.size(), somebody_waits(task), sources.copies());
    if (!delay || stopping_) {
      end_task(task, error, false, calls);
    } else {
      // The compressed bytes of a span with a wrong window are right and kept.
      need_before(task);
      download_window(task, *delay);
      if (window_is_wrong)
        decode_if_downloaded(task);
      else
        download_blob(task, *delay);
    }
  }
  carry_out(std::move(calls));
}

void SpanFetcher::answer_readers(std::unique_lock<std::mutex>& lock, Tasks::iterator task, ByteView stream) {
  const auto& [key, state] = *task;
  const auto range = state.layer->map->spans[key.second].stream_range;
  while (true) {
    auto& waiters = task->second.waiters;
    const auto others_end =
        std::partition(waiters.begin(), waiters.end(), [](const auto& one) { return !one->reads(); });
    Waiters readers(others_end, waiters.end());
    waiters.erase(others_end, waiters.end());
    std::erase_if(readers, [](const auto& reader) { return !reader->waits(); });
    if (readers.empty()) return;
    for (const auto& reader : readers) ++reader->copies;
    lock.unlock();
    for (const auto& reader : readers) {
      const auto part = part_of(reader->buffer, range);
      std::ranges::copy(stream.subspan(part.stream_offset - range.offset, part.into.size()), part.into.begin());
    }
    Calls calls;
    lock.lock();
    for (const auto& reader : readers) {
      --reader->copies;
      --reader->spans_left;
      end_if_over(*reader, calls);
    }
    lock.unlock();
    carry_out(std::move(calls));
    readers.clear();
    lock.lock();
  }
}

void SpanFetcher::end_task(Tasks::iterator task, const std::exception_ptr& error, bool on_disk, Calls& calls) {
  auto& [key, state] = *task;
  const auto layer = state.layer;
  const auto described = error ? with_context(place_of(*layer, key.second), error) : nullptr;
  if (!error) layer->last_failure.clear();
  if (error && somebody_waits(task)) {
    layer->counters.errors.fetch_add(1, std::memory_order_relaxed);
    layer->counters.last_error.with([&](std::string& last) { last = message_of(described); });
    const auto digest = layer->map->layer_digest.to_string();
    const log::Field about_layer("LAYER", digest);
    log::error("{}", message_of(described));
  } else if (error) {
    log::debug("ahead of need: {}", message_of(described));
  }
  const auto waiters = std::move(state.waiters);
  const auto follower = follower_of(task);
  tasks_.erase(task);
  layer->counters.fetching.fetch_sub(1, std::memory_order_relaxed);
  if (error && follower != tasks_.end()) {
    ranges_.forget(*layer->blob_pieces, follower->first.second);
    end_task(follower, error, on_disk, calls);
  }
  for (const auto& waiter : waiters) {
    if (!waiter->waits()) continue;
    --waiter->spans_left;
    auto failure = described;
    // Whoever fills the store ahead of readers must hear that it does not fill.
    if (!error && !on_disk && waiter->priority != Priority::kReader)
      failure =
          std::make_exception_ptr(TemporaryError(place_of(*layer, waiter->first) + ": the disk of the store is full"));
    if (failure)
      fail_waiter(*waiter, failure, calls);
    else if (waiter->spans_left > 0 && waiter->priority != Priority::kReader)
      set_deadline(waiter);  // of the next span: a whole layer may take longer than one reader would wait
    else
      end_if_over(*waiter, calls);
  }
}

void SpanFetcher::end_if_over(Waiter& waiter, Calls& calls) {
  if (!waiter.done || waiter.copies > 0 || (waiter.spans_left > 0 && !waiter.failure)) return;
  deadlines_.erase({waiter.deadline, &waiter});
  calls.push_back({.done = std::exchange(waiter.done, nullptr), .error = std::exchange(waiter.failure, nullptr)});
}

void SpanFetcher::fail_waiter(Waiter& waiter, const std::exception_ptr& error, Calls& calls) {
  if (!waiter.waits()) return;
  waiter.failure = error;
  deadlines_.erase({waiter.deadline, &waiter});
  end_if_over(waiter, calls);
  forget_unwanted_tasks(waiter);
}

// Spans that were queued for this waiter alone are not fetched any more.
void SpanFetcher::forget_unwanted_tasks(const Waiter& waiter) {
  const auto& spans = waiter.layer->map->spans;
  auto first = waiter.first;
  while (spans[first].follows) --first;
  // From the end: what a span follows is wanted as long as that span is.
  for (auto span = waiter.last; span-- > first;) {
    const auto task = tasks_.find({waiter.layer.get(), span});
    if (task == tasks_.end() || task->second.stage != Task::Stage::kFetching || somebody_waits(task) ||
        follower_of(task) != tasks_.end() || !ranges_.forget(*waiter.layer->blob_pieces, span))
      continue;
    waiter.layer->counters.fetching.fetch_sub(1, std::memory_order_relaxed);
    tasks_.erase(task);
  }
}

void SpanFetcher::set_deadline(const std::shared_ptr<Waiter>& waiter) {
  deadlines_.erase({waiter->deadline, waiter.get()});
  waiter->deadline = clock_.now() + options_.deadline;
  deadlines_.emplace(std::pair(waiter->deadline, waiter.get()), waiter);
  deadline_changed_.notify_one();
}

// Empty while it is not a source that is waited for.
std::string SpanFetcher::source_of(Tasks::const_iterator entry) const {
  while (entry->second.needs_before) --entry;  // it has a task, and is next to it
  const auto& task = entry->second;
  const auto& layer = *task.layer;
  std::shared_ptr<oci::Repository> source;
  if (task.stage == Task::Stage::kWholeBlob)
    source = layer.blob_sources.nth(layer.blob_sources.preferred());
  else if (task.stage == Task::Stage::kFetching && !task.compressed)
    source = layer.blob_sources.nth(task.blob_attempts.source());
  else if (task.stage == Task::Stage::kFetching)
    source = layer.window_sources.nth(task.window_attempts.source());
  return source ? source->name() : "";
}

SpanFetcher::Wait SpanFetcher::longest_wait(const FetchLayer& layer) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, waiter] : deadlines_) {  // who began first is first
    if (waiter->layer.get() != &layer || !waiter->waits()) continue;
    if (waiter->priority != Priority::kReader && waiter->last_error.empty()) continue;  // it lets others pass
    for (auto span = waiter->first; span < waiter->last; ++span) {
      const auto task = tasks_.find({waiter->layer.get(), span});
      if (task == tasks_.end()) continue;
      auto source = source_of(task);
      if (source.empty()) continue;
      return {.seconds = std::chrono::duration<double>(clock_.now() - (waiter->deadline - options_.deadline)).count(),
              .source = std::move(source)};
    }
  }
  return {};
}

bool SpanFetcher::somebody_waits() {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(deadlines_, [](const auto& entry) {
    return entry.second->waits() && entry.second->priority != Priority::kBackground;
  });
}

bool SpanFetcher::busy() {
  const std::lock_guard lock(mutex_);
  return !tasks_.empty();
}

void SpanFetcher::start_threads() {
  if (!threads_.empty()) return;
  const auto decoders = jobs_or_cores(options_.decode_threads);
  for (unsigned i = 0; i < decoders; ++i) threads_.emplace_back([this] { decode_loop(); });
  threads_.emplace_back([this] { deadline_loop(); });
}

void SpanFetcher::expire_waiters(Calls& calls) {
  const auto now = clock_.now();
  while (!deadlines_.empty() && deadlines_.begin()->first.first <= now) {
    const auto waiter = deadlines_.begin()->second;
    // While a source rests nothing is asked for some readers: they hear why it does.
    const auto& why = waiter->last_error.empty() ? waiter->layer->last_failure : waiter->last_error;
    const auto message = fmt::format("{}: not here after {} s{}{}", place_of(*waiter->layer, waiter->first),
                                     std::chrono::duration_cast<std::chrono::seconds>(options_.deadline).count(),
                                     why.empty() ? "" : ": ", why);
    waiter->layer->counters.errors.fetch_add(1, std::memory_order_relaxed);
    waiter->layer->counters.last_error.with([&](std::string& last) { last = message; });
    const auto digest = waiter->layer->map->layer_digest.to_string();
    const log::Field about_layer("LAYER", digest);
    log::error("{}", message);
    fail_waiter(*waiter, std::make_exception_ptr(TemporaryError(message)), calls);
  }
}

void SpanFetcher::deadline_loop() {
  // Clocks that are turned by hand do not wake us.
  constexpr std::chrono::milliseconds kLongestWait{50};
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Calls calls;
    expire_waiters(calls);
    if (!calls.empty()) {
      lock.unlock();
      carry_out(std::move(calls));
      lock.lock();
    } else if (deadlines_.empty()) {
      deadline_changed_.wait(lock);
    } else {
      deadline_changed_.wait_for(lock, kLongestWait);
    }
  }
}

void SpanFetcher::stop() {
  Calls calls;
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    while (!deadlines_.empty()) {
      const auto waiter = deadlines_.begin()->second;
      const auto place = place_of(*waiter->layer, waiter->first);
      fail_waiter(*waiter, std::make_exception_ptr(Cancelled(place + kStopped)), calls);
    }
    threads.swap(threads_);
    std::move(whole_threads_.begin(), whole_threads_.end(), std::back_inserter(threads));
    whole_threads_.clear();
  }
  decode_changed_.notify_all();
  whole_changed_.notify_all();
  deadline_changed_.notify_all();
  carry_out(std::move(calls));
  ranges_.stop();
  threads.clear();  // joins
  const std::lock_guard lock(mutex_);
  to_decode_.clear();
  blocks_.clear();
  tasks_.clear();
  whole_queue_.clear();
  whole_layers_.clear();
}

}  // namespace varve::fuse
