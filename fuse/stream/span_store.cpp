#include "fuse/stream/span_store.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/boot_id.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kPageBytes = 4'096;
constexpr std::size_t kDigestStepBytes = 1 << 20;
constexpr int kReadsWithoutLock = 8;

// Presence is by span number, so it holds only for the same cut of the same bytes. Windows and compressed offsets may
// change, where the map itself has the digests.
Digest cut_of(const index::LayerMap& map) {
  Sha256 hash;
  Bytes part;
  append_le<std::uint64_t>(part, map.stream_bytes);
  if (map.has_digests_in_windows()) append(part, map.windows_digest.raw());
  for (std::size_t i = 0; i < map.spans.size(); ++i) {
    append_le<std::uint64_t>(part, map.spans[i].stream_range.offset);
    append_le<std::uint64_t>(part, map.spans[i].stream_range.length);
    if (!map.digests.empty()) append(part, map.digests[i].stream.raw());
    if (part.size() < 64 * 1024) continue;
    hash.update(part);
    part.clear();
  }
  hash.update(part);
  return hash.finish();
}

}  // namespace

std::uint32_t coarse_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::max<std::uint32_t>(1, std::uint32_t(now.tv_sec));
}

SpanStore::SpanStore(std::filesystem::path dir, std::shared_ptr<const index::LayerMap> map, SpanStoreOptions options)
    : dir_(std::move(dir)), map_(std::move(map)), options_(options), spans_(new SpanState[map_->spans.size()]) {
  if (std::filesystem::exists(dir_)) make_files();
}

SpanStore::~SpanStore() { sync(); }

std::string SpanStore::name() const { return map_->layer_digest.to_string(); }

std::uint64_t SpanStore::data_bytes() const { return (map_->stream_bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

void SpanStore::open_files() {
  std::filesystem::create_directories(dir_);
  auto opened = PresenceLog::open(dir_ / "presence", {.kind = PresenceIdentity::Kind::kSpans,
                                                      .object = map_->layer_digest,
                                                      .cut = cut_of(*map_),
                                                      .units = map_->spans.size(),
                                                      .data_bytes = data_bytes()});
  log_ = std::move(opened.log);
  data_ = open_file(data_path(), O_RDWR | O_CREAT);
  const auto size = file_size(data_.get(), data_path());
  using Found = PresenceLog::Found;
  auto found = opened.found;
  if (found == Found::kSame && size != data_bytes()) {
    log::warn("store of {}: thrown away: its data file has {} bytes, not {}", name(), size, data_bytes());
    std::vector<std::uint32_t> all;
    for (std::size_t span = 0; span < map_->spans.size(); ++span) all.push_back(std::uint32_t(span));
    log_->append(runs_of(std::move(all)), false);
    found = Found::kNothing;
  } else if (found == Found::kUnusable) {
    log::warn("store of {}: thrown away: presence log: {}", name(), opened.reason);
  } else if (!opened.reason.empty()) {
    log::warn("store of {}: presence log: {}", name(), opened.reason);
  }
  const bool keep = found == Found::kSame || found == Found::kOtherCut;
  if (keep) {
    kept_whole_ = was_mounted_since_boot();
  } else {
    // First, as it would speak of the data that comes.
    if (std::filesystem::remove(content_presence_path())) sync_folder(dir_);
    // Never truncated: who has mounted it reads on from the file that loses its name here.
    if (size > 0) {
      std::filesystem::remove(data_path());
      data_ = open_file(data_path(), O_RDWR | O_CREAT);
    }
    std::filesystem::remove(mounted_path());
  }
  if (::ftruncate(data_.get(), off_t(data_bytes())) != 0) fail_errno("set the size of {}", data_path().string());
  if (found == Found::kSame)
    for (std::size_t span = 0; span < opened.present.size(); ++span)
      if (opened.present[span]) set_present(span);
  if (found == Found::kOtherCut) mark_data_unchecked();
  open_units();
}

// The layer map was made anew with other spans. The bytes are those of the same layer, so most will prove right when
// they are wanted.
void SpanStore::mark_data_unchecked() {
  std::size_t unchecked = 0;
  std::size_t span = 0;
  for (off_t at = 0; span < map_->spans.size();) {
    const auto data = ::lseek(data_.get(), at, SEEK_DATA);
    if (data < 0) break;
    at = ::lseek(data_.get(), data, SEEK_HOLE);
    if (at < 0) break;
    for (; span < map_->spans.size() && map_->spans[span].stream_range.offset < std::uint64_t(at); ++span) {
      if (map_->spans[span].stream_range.end() <= std::uint64_t(data)) continue;
      spans_[span].state = State::kUnchecked;
      ++unchecked;
    }
  }
  log::info("store of {}: the layer map has other spans than before; {} of {} are checked before use", name(),
            unchecked, map_->spans.size());
}

ByteRange SpanStore::part_in(std::size_t span, ByteRange stream_range) const {
  return map_->spans[span].stream_range.common_with(stream_range);
}

bool SpanStore::is_readable(ByteRange stream_range) const {
  if (complete()) return true;
  const auto* units = units_.load(std::memory_order_acquire);
  const auto [first, last] = map_->spans_of(stream_range);
  for (auto span = first; span < last; ++span)
    if (!is_readable(span) && (units == nullptr || !units->covers(part_in(span, stream_range)))) return false;
  return true;
}

std::vector<std::uint32_t> SpanStore::missing_spans(ByteRange stream_range, bool contents_only) {
  std::vector<std::uint32_t> missing;
  const auto* units = units_.load(std::memory_order_acquire);
  const auto [first, last] = map_->spans_of(stream_range);
  for (auto span = first; span < last && !complete(); ++span) {
    if (touch_if_readable(span)) continue;
    const auto part = part_in(span, stream_range);
    if (units_cover(part) ||
        (contents_only && units != nullptr && units->any_present(part) && !units->lacks_content(part)))
      touch(span);
    else
      missing.push_back(std::uint32_t(span));
  }
  return missing;
}

std::uint64_t SpanStore::present_bytes() const {
  auto bytes = present_bytes_.load(std::memory_order_relaxed);
  const auto* units = units_.load(std::memory_order_acquire);
  if (units == nullptr || units->none()) return bytes;
  for (std::size_t span = 0; span < map_->spans.size(); ++span) {
    if (state(span) == State::kPresent) continue;
    const auto range = map_->spans[span].stream_range;
    const auto [first, last] = units->table().contents_of(range);
    for (auto unit = first; unit < last; ++unit) {
      const auto content = units->table().range(unit);
      if (units->state(unit) == UnitPresence::State::kPresent) bytes += content.common_with(range).length;
    }
  }
  return bytes;
}

void SpanStore::touch(std::size_t span) {
  auto& state = spans_[span];
  const auto now = coarse_seconds();
  if (state.last_use.load(std::memory_order_relaxed) != now) state.last_use.store(now, std::memory_order_relaxed);
  if (options_.drop_pages && !state.pages_cached.load(std::memory_order_relaxed))
    state.pages_cached.store(true, std::memory_order_relaxed);
}

void SpanStore::set_present(std::size_t span) {
  const auto before = spans_[span].state.exchange(State::kPresent, std::memory_order_acq_rel);
  if (before == State::kPresent) return;
  present_bytes_.fetch_add(map_->spans[span].stream_range.length, std::memory_order_relaxed);
  present_spans_.fetch_add(1, std::memory_order_acq_rel);
}

void SpanStore::set_absent(std::size_t span) {
  const auto before = spans_[span].state.exchange(State::kAbsent, std::memory_order_acq_rel);
  if (before != State::kPresent && before != State::kLeaving) return;  // readers of spans in memory hold them
  drops_.fetch_add(1, std::memory_order_acq_rel);
  if (before == State::kLeaving) return;
  present_spans_.fetch_sub(1, std::memory_order_acq_rel);
  present_bytes_.fetch_sub(map_->spans[span].stream_range.length, std::memory_order_relaxed);
}

bool SpanStore::take_back(std::size_t span) {
  auto expected = State::kLeaving;
  if (!spans_[span].state.compare_exchange_strong(expected, State::kPresent, std::memory_order_acq_rel))
    return expected == State::kPresent;
  present_bytes_.fetch_add(map_->spans[span].stream_range.length, std::memory_order_relaxed);
  present_spans_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

bool SpanStore::touch_if_readable(std::size_t span) {
  const auto now = state(span);
  if (now == State::kInMemory) return true;
  if (now != State::kPresent && !take_back(span)) return false;
  touch(span);
  return true;
}

bool SpanStore::put(std::size_t span, ByteView stream) {
  const auto range = map_->spans[span].stream_range;
  const std::shared_lock no_drop(drop_mutex_);
  forget_contradicted(span, stream);
  try {
    make_files();
    pwrite_all(data_.get(), range.offset, stream, data_path().string());
  } catch (const std::system_error& error) {
    keep_in_memory(span, stream, error.what());
    return false;
  }
  if (disk_full_.exchange(false, std::memory_order_relaxed))
    log::info("store of {}: the disk takes data again", name());
  pending_.with([&](Pending& pending) { pending.spans.push_back(std::uint32_t(span)); });
  unsynced_bytes_.fetch_add(range.length, std::memory_order_relaxed);
  touch(span);
  set_present(span);
  return true;
}

void SpanStore::keep_in_memory(std::size_t span, ByteView stream, const std::string& reason) {
  if (!disk_full_.exchange(true, std::memory_order_relaxed))
    log::warn("store of {}: {}: going on from memory, which is slower", name(), reason);
  auto bytes = std::make_shared<const Bytes>(to_bytes(stream));
  auto overflow = overflow_.lock();
  overflow->kept_bytes += bytes->size();
  overflow->kept.emplace_back(span, std::move(bytes));
  spans_[span].state.store(State::kInMemory, std::memory_order_release);
  // The newest stays whatever its size.
  while (overflow->kept_bytes > options_.overflow_bytes && overflow->kept.size() > 1) {
    const auto& [oldest, oldest_bytes] = overflow->kept.front();
    if (state(oldest) == State::kInMemory) set_absent(oldest);
    overflow->kept_bytes -= oldest_bytes->size();
    overflow->kept.pop_front();
  }
}

SpanStore::SharedBytes SpanStore::find_in_memory(std::size_t span) {
  return overflow_.with([&](const Overflow& overflow) -> SharedBytes {
    const auto found = std::ranges::find(overflow.kept, span, [](const auto& entry) { return entry.first; });
    return found == overflow.kept.end() ? nullptr : found->second;
  });
}

std::vector<std::uint32_t> SpanStore::read(std::uint64_t stream_offset, std::span<std::byte> into) {
  NotRead not_read;
  bool undisturbed = false;
  // A span dropped between the look at its state and the read of its bytes would read as zeros.
  for (int attempt = 0; attempt < kReadsWithoutLock && !undisturbed; ++attempt) {
    const auto drops = drops_.load(std::memory_order_acquire);
    not_read = try_read(stream_offset, into);
    undisturbed = drops_.load(std::memory_order_acquire) == drops;
  }
  if (!undisturbed) {
    // Spans go faster than so many are read: for once they wait for the reader.
    const std::shared_lock no_drop(drop_mutex_);
    not_read = try_read(stream_offset, into);
  }
  for (const auto span : not_read.unreadable) drop_bad(span);
  return std::move(not_read.missing);
}

SpanStore::NotRead SpanStore::try_read(std::uint64_t stream_offset, std::span<std::byte> into) {
  NotRead not_read;
  const auto inside = stream_offset >= map_->stream_bytes
                          ? 0
                          : std::min<std::uint64_t>(into.size(), map_->stream_bytes - stream_offset);
  std::fill(into.begin() + std::ptrdiff_t(inside), into.end(), std::byte{0});
  if (inside == 0) return not_read;
  const auto [first, last] = map_->spans_of({.offset = stream_offset, .length = inside});
  const auto end = stream_offset + inside;
  // Neighbouring spans of the file are read in one go: [run, at) is what waits to be read.
  auto run = stream_offset;
  auto at = stream_offset;
  const auto read_run = [&] {
    if (at > run) read_present({run, at - run}, into.subspan(run - stream_offset, at - run), not_read);
  };
  for (auto span = first; span < last; ++span) {
    const auto range = map_->spans[span].stream_range;
    const auto span_end = std::min(end, range.end());
    const auto now = state(span);
    if (now == State::kPresent || (now == State::kLeaving && take_back(span)) ||
        (now != State::kInMemory && units_cover({.offset = at, .length = span_end - at}))) {
      touch(span);
    } else {
      read_run();
      run = span_end;
      if (const auto bytes = now == State::kInMemory ? find_in_memory(span) : nullptr)
        std::copy_n(bytes->begin() + std::ptrdiff_t(at - range.offset), span_end - at,
                    into.begin() + std::ptrdiff_t(at - stream_offset));
      else
        not_read.missing.push_back(std::uint32_t(span));
    }
    at = span_end;
  }
  read_run();
  return not_read;
}

// One bad sector costs the spans that it lies in, not all that are read with them.
void SpanStore::read_present(ByteRange stream_range, std::span<std::byte> into, NotRead& not_read) const {
  const auto [first, last] = map_->spans_of(stream_range);
  try {
    return pread_exactly(data_.get(), stream_range.offset, into, data_path().string());
  } catch (const std::exception& error) {
    log::error("store of {}: {}: what cannot be read is fetched again", name(), error.what());
  }
  for (auto span = first; span < last; ++span) {
    const auto range = map_->spans[span].stream_range;
    const auto from = std::max(range.offset, stream_range.offset);
    const auto part = into.subspan(from - stream_range.offset, std::min(range.end(), stream_range.end()) - from);
    try {
      pread_exactly(data_.get(), from, part, data_path().string());
    } catch (const std::exception&) {
      not_read.missing.push_back(std::uint32_t(span));
      not_read.unreadable.push_back(std::uint32_t(span));
    }
  }
}

void SpanStore::sync(const std::function<bool()>& first) {
  const std::lock_guard log_lock(log_mutex_);
  auto spans = pending_.with([](Pending& pending) { return std::exchange(pending.spans, {}); });
  const auto unit_bytes = unsynced_unit_bytes_.exchange(0, std::memory_order_relaxed);
  const auto units = units_owner_ ? units_owner_->take_pending() : std::vector<std::uint32_t>();
  std::uint64_t bytes = 0;
  for (const auto span : spans) bytes += map_->spans[span].stream_range.length;
  unsynced_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  const auto put_back = [&] {
    unsynced_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    pending_.with([&](Pending& pending) { pending.spans.insert(pending.spans.end(), spans.begin(), spans.end()); });
    unsynced_unit_bytes_.fetch_add(unit_bytes, std::memory_order_relaxed);
    if (!units.empty()) units_owner_->put_back_pending(units);
  };
  if (first && !first()) return put_back();
  if (spans.empty() && units.empty()) return;
  if (::fdatasync(data_.get()) != 0) {
    // The kernel reports a lost write once and then takes the pages for clean: they must not be believed.
    log::error("store of {}: sync of {}: {}: {} spans are fetched again", name(), data_path().string(),
               std::generic_category().message(errno), spans.size());
    for (const auto span : spans) set_absent(span);
    for (const auto unit : units) units_owner_->set_absent(unit);
    drops_.fetch_add(1, std::memory_order_acq_rel);
    return;
  }
  try {
    log_->append(runs_of(spans), true);  // also without spans: a log that is lost would take the data with it
    if (!units.empty()) units_owner_->record(units, true);
    log_failed_ = false;
  } catch (const std::system_error& error) {
    if (!std::exchange(log_failed_, true)) log::warn("store of {}: {}: tried again later", name(), error.what());
    put_back();
  }
}

void SpanStore::drop_idle_pages(std::uint32_t idle_seconds) {
  if (!options_.drop_pages) return;
  const auto now = coarse_seconds();
  for (std::size_t span = 0; span < map_->spans.size(); ++span) {
    auto& state = spans_[span];
    if (!state.pages_cached.load(std::memory_order_relaxed) ||
        state.last_use.load(std::memory_order_relaxed) + idle_seconds > now)
      continue;
    state.pages_cached.store(false, std::memory_order_relaxed);
    const auto range = map_->spans[span].stream_range;
    ::posix_fadvise(data_.get(), off_t(range.offset), off_t(range.length), POSIX_FADV_DONTNEED);
  }
}

void SpanStore::drop(std::size_t span) {
  const std::lock_guard log_lock(log_mutex_);
  const std::lock_guard no_put(drop_mutex_);
  set_absent(span);
  forget({std::uint32_t(span)});
}

void SpanStore::drop_bad(std::size_t span) {
  try {
    drop(span);
  } catch (const std::system_error& error) {
    log::warn("store of {}: a bad span is forgotten until the next start only: {}", name(), error.what());
  }
}

// Of spans that are absent already; under both locks. Returns their stream bytes.
std::uint64_t SpanStore::forget(const std::vector<std::uint32_t>& spans) {
  const auto length_of = [&](std::uint32_t span) { return map_->spans[span].stream_range.length; };
  overflow_.with([&](Overflow& overflow) {
    std::erase_if(overflow.kept, [&](const auto& entry) {
      if (!std::ranges::binary_search(spans, entry.first)) return false;
      overflow.kept_bytes -= entry.second->size();
      return true;
    });
  });
  pending_.with([&](Pending& pending) {
    std::erase_if(pending.spans, [&](std::uint32_t span) {
      if (!std::ranges::binary_search(spans, span)) return false;
      unsynced_bytes_.fetch_sub(length_of(span), std::memory_order_relaxed);
      return true;
    });
  });
  if (!files_.is_done()) return 0;
  // First the record, then the hole: the other way round a crash would leave a hole that counts as present.
  record_gone(spans);
  std::uint64_t bytes = 0;
  for (const auto span : spans) {
    if (is_kept_whole()) break;  // a wrong byte is better than a hole full of zeros; put() writes over it
    const auto range = map_->spans[span].stream_range;
    ::fallocate(data_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(range.offset), off_t(range.length));
    bytes += range.length;
  }
  return bytes;
}

// Of the spans and the units that touch them.
void SpanStore::record_gone(const std::vector<std::uint32_t>& spans) {
  std::vector<std::uint32_t> units;
  for (const auto span : spans) {
    if (!units_owner_) break;
    const auto some = units_owner_->set_absent(map_->spans[span].stream_range);
    units.insert(units.end(), some.begin(), some.end());
  }
  if (!units.empty()) drops_.fetch_add(1, std::memory_order_acq_rel);
  try {
    if (!units.empty()) units_owner_->record(units, false);
    log_->append(runs_of(spans), false);
  } catch (...) {
    record_is_behind_ = true;
    throw;
  }
}

std::uint64_t SpanStore::evictable_bytes(std::size_t span) const {
  const auto range = map_->spans[span].stream_range;
  if (state(span) == State::kPresent) return range.length;
  const auto* units = units_.load(std::memory_order_acquire);
  return state(span) == State::kAbsent && units != nullptr && units->any_present(range) ? units->held_bytes(range) : 0;
}

bool SpanStore::begin_evict(std::size_t span) {
  const std::shared_lock no_keep(drop_mutex_);
  if (kept_whole_) return false;
  auto* units = units_.load(std::memory_order_acquire);
  const bool with_units = units != nullptr && units->begin_leaving(map_->spans[span].stream_range);
  auto expected = State::kPresent;
  if (!spans_[span].state.compare_exchange_strong(expected, State::kLeaving, std::memory_order_acq_rel)) {
    if (expected == State::kAbsent) return with_units;
    if (with_units) units->stay(map_->spans[span].stream_range);
    return false;
  }
  present_spans_.fetch_sub(1, std::memory_order_acq_rel);
  present_bytes_.fetch_sub(map_->spans[span].stream_range.length, std::memory_order_relaxed);
  return true;
}

std::uint64_t SpanStore::finish_evict(const std::vector<std::uint32_t>& spans, std::uint32_t began) {
  const std::lock_guard log_lock(log_mutex_);
  const std::lock_guard no_put(drop_mutex_);
  std::vector<std::uint32_t> gone;
  for (const auto span : spans)
    if (leave(span, began)) gone.push_back(span);
  std::ranges::sort(gone);
  return gone.empty() ? 0 : forget(gone);
}

// False, and all of it stays, if somebody wanted some of it.
bool SpanStore::leave(std::size_t span, std::uint32_t began) {
  auto* units = units_.load(std::memory_order_acquire);
  const auto range = map_->spans[span].stream_range;
  bool wanted = last_use(span) > began || (units != nullptr && units->any_present(range));
  if (!wanted) {
    auto expected = State::kLeaving;
    if (spans_[span].state.compare_exchange_strong(expected, State::kAbsent, std::memory_order_acq_rel))
      drops_.fetch_add(1, std::memory_order_acq_rel);
    else
      wanted = expected != State::kAbsent || units == nullptr || units->held_bytes(range) == 0;
  }
  if (!wanted) return true;
  take_back(span);
  if (units != nullptr) units->stay(range);
  return false;
}

bool SpanStore::was_mounted_since_boot() const {
  const auto noted = read_file_if_there(mounted_path(), 4096);
  return noted && !noted->empty() && as_text(*noted) == boot_id();
}

bool SpanStore::note_mounted() {
  if (is_kept_whole()) return true;
  try {
    make_files();
    write_file_atomically(mounted_path(), as_bytes(boot_id()), 0600);
    return true;
  } catch (const std::system_error& error) {
    log::warn("store of {}: {}", name(), error.what());
    return false;
  }
}

bool SpanStore::keep_whole() {
  const std::lock_guard no_evict(drop_mutex_);
  if (!complete() || !note_mounted()) return false;
  kept_whole_ = true;
  return true;
}

void SpanStore::keep_mounted() {
  const std::lock_guard no_evict(drop_mutex_);
  note_mounted();
  kept_whole_ = true;
}

Digest SpanStore::digest_of_file(std::size_t span) {
  const auto range = map_->spans[span].stream_range;
  Bytes part(std::min<std::uint64_t>(range.length, kDigestStepBytes));
  Sha256 hash;
  const auto bytes = state(span) == State::kInMemory ? find_in_memory(span) : nullptr;
  for (std::uint64_t done = 0; done < range.length && !bytes; done += part.size()) {
    part.resize(std::min<std::uint64_t>(part.size(), range.length - done));
    pread_exactly(data_.get(), range.offset + done, part, data_path().string());
    hash.update(part);
  }
  if (bytes) hash.update(*bytes);
  return hash.finish();
}

bool SpanStore::check(std::size_t span, const Digest& digest, std::span<std::byte> stream) {
  const std::shared_lock no_drop(drop_mutex_);
  bool right = false;
  try {
    pread_exactly(data_.get(), map_->spans[span].stream_range.offset, stream, data_path().string());
    right = digest_of(stream) == digest;
  } catch (const std::exception& error) {
    log::error("store of {}: {}: what cannot be read is fetched again", name(), error.what());
  }
  if (right) {
    pending_.with([&](Pending& pending) { pending.spans.push_back(std::uint32_t(span)); });
    unsynced_bytes_.fetch_add(stream.size(), std::memory_order_relaxed);
    touch(span);
    set_present(span);
    return true;
  }
  spans_[span].state.store(State::kAbsent, std::memory_order_release);
  return false;
}

bool SpanStore::verify(std::size_t span, const Digest& digest) {
  if (!is_readable(span) && !is_kept_whole()) return true;
  const auto is_right = [&] {
    try {
      return digest_of_file(span) == digest;
    } catch (const std::exception& error) {
      log::warn("verify {}: {}", name(), error.what());  // a disk that cannot be read holds no right bytes
      return false;
    }
  };
  const auto drops = drops_.load(std::memory_order_acquire);
  const bool right = is_right();
  if (!is_readable(span)) {
    if (!is_kept_whole()) return true;
    // Damaged, and not repaired yet; or stored by a process that died before it was recorded.
    if (right && state(span) == State::kAbsent) {
      pending_.with([&](Pending& pending) { pending.spans.push_back(std::uint32_t(span)); });
      unsynced_bytes_.fetch_add(map_->spans[span].stream_range.length, std::memory_order_relaxed);
      set_present(span);
    }
    return right;
  }
  if (right) return true;
  // Dropped and put again under our eyes: look once more.
  if (drops_.load(std::memory_order_acquire) != drops && is_right()) return true;
  drop_bad(span);
  return false;
}

}  // namespace varve::fuse
