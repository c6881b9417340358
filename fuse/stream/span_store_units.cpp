// The half of the store that keeps contents without the spans around them: what UnitPresence says, beside what spans
// say.
#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "fuse/stream/span_store.h"

namespace varve::fuse {

// A table of other entries is one of another index: what its units say is nothing to us.
void SpanStore::open_units() {
  if (!options_.entries) return;
  try {
    if (auto table = index::UnitTable::open(units_path()); table && table->entries_digest() == *options_.entries)
      return use_units(std::move(table));
  } catch (const CorruptData& error) {
    log::warn("store of {}: {}: made anew", name(), error.what());
  }
  std::filesystem::remove(content_presence_path());
  std::filesystem::remove(units_path());
}

void SpanStore::use_units(std::shared_ptr<const index::UnitTable> table) {
  if (table->layer_digest() != map_->layer_digest || table->stream_bytes() != map_->stream_bytes)
    fail<CorruptData>("{}: it is of layer {} of {} bytes, not of {} of {}", units_path().string(),
                      table->layer_digest().to_string(), table->stream_bytes(), name(), map_->stream_bytes);
  units_owner_ = std::make_unique<UnitPresence>(content_presence_path(), std::move(table), data_bytes());
  units_.store(units_owner_.get(), std::memory_order_release);
}

void SpanStore::set_units(ByteView table) {
  const std::lock_guard log_lock(log_mutex_);
  if (units_owner_) return;
  make_files();
  write_file_atomically(units_path(), table, 0600);
  use_units(index::UnitTable::open(units_path()));
}

const index::UnitTable* SpanStore::units() const {
  const auto* units = units_.load(std::memory_order_acquire);
  return units == nullptr || units_contradict_ ? nullptr : &units->table();
}

bool SpanStore::has_unit(std::size_t unit) const {
  return units_.load(std::memory_order_acquire)->state(unit) == UnitPresence::State::kPresent;
}

std::string SpanStore::contradiction() const {
  return contradiction_.with([](const std::string& text) { return text; });
}

// A use of them.
bool SpanStore::units_cover(ByteRange stream_range) {
  auto* units = units_.load(std::memory_order_acquire);
  return units != nullptr && units->take_back(stream_range);
}

// Units that are here say what the span says, or one of the two is not what the layer holds: the map is believed. A
// unit that begins or ends in another span may have been damaged by the disk: it is only forgotten.
void SpanStore::forget_contradicted(std::size_t span, ByteView stream) {
  auto* units = units_.load(std::memory_order_acquire);
  const auto range = map_->spans[span].stream_range;
  if (units == nullptr || !units->any_present(range)) return;
  const auto [first, last] = units->table().contents_of(range);
  for (auto unit = first; unit < last; ++unit) {
    if (units->state(unit) == UnitPresence::State::kAbsent) continue;
    const auto content = units->table().range(unit);
    const auto part = content.common_with(range);
    if (part.length == 0) continue;  // only its padding is in the span
    const auto fresh = stream.subspan(part.offset - range.offset, part.length);
    Bytes here(fresh.size());
    try {
      pread_exactly(data_.get(), part.offset, here, data_path().string());
    } catch (const std::exception&) {
      here.clear();
    }
    if (std::ranges::equal(here, fresh)) continue;
    units->set_absent(unit);
    if (part.length < content.length || digest_of(fresh) == units->table().digest(unit)) continue;
    const auto text = fmt::format(
        "layer {}: the layer entries {} contradict the layer map: the content at stream offset {} is not "
        "what they say; nothing is taken by them any more; index the image anew",
        name(), units->table().entries_digest().to_string(), content.offset);
    if (!units_contradict_.exchange(true)) log::error("{}", text);
    contradiction_.with([&](std::string& why) { why = text; });
    units->set_absent({.offset = 0, .length = map_->stream_bytes});
    drops_.fetch_add(1, std::memory_order_acq_rel);
    return;
  }
}

bool SpanStore::put_unit(std::size_t unit, ByteView content) {
  auto* units = units_.load(std::memory_order_acquire);
  const std::lock_guard no_other(drop_mutex_);
  if (units == nullptr || units_contradict_ || record_is_behind_ || disk_full()) return false;
  auto padded = to_bytes(content);
  const auto range = units->table().padded_range(unit);
  padded.resize(range.length);
  const auto [first, last] = map_->spans_of(range);
  for (auto span = first; span < last; ++span) {
    // Unchecked bytes may be right already; what is in memory only is so because the disk is full.
    if (state(span) == State::kUnchecked || state(span) == State::kInMemory) return false;
  }
  try {
    for (auto span = first; span < last; ++span) {
      if (take_back(span)) continue;  // never over what a span says
      const auto part = part_in(span, range);
      pwrite_all(data_.get(), part.offset, ByteView(padded).subspan(part.offset - range.offset, part.length),
                 data_path().string());
      touch(span);
    }
  } catch (const std::system_error& error) {
    log::debug("store of {}: a copy is not kept: {}", name(), error.what());
    return false;
  }
  units->set_present(unit);
  unsynced_unit_bytes_.fetch_add(content.size(), std::memory_order_relaxed);
  return true;
}

bool SpanStore::verify_unit(std::size_t unit) {
  auto* units = units_.load(std::memory_order_acquire);
  const auto range = units->table().range(unit);
  const auto is_right = [&] {
    Bytes content(range.length);
    try {
      pread_exactly(data_.get(), range.offset, content, data_path().string());
    } catch (const std::exception& error) {
      log::warn("verify {}: {}", name(), error.what());
      return false;
    }
    return digest_of(content) == units->table().digest(unit);
  };
  const auto drops = drops_.load(std::memory_order_acquire);
  if (is_right() || units->state(unit) == UnitPresence::State::kAbsent) return true;
  if (drops_.load(std::memory_order_acquire) != drops && is_right()) return true;
  const std::lock_guard log_lock(log_mutex_);
  const std::lock_guard no_put(drop_mutex_);
  if (!units->set_absent(unit)) return true;
  drops_.fetch_add(1, std::memory_order_acq_rel);
  try {
    units->record({std::uint32_t(unit)}, false);
  } catch (const std::system_error& error) {
    log::warn("store of {}: a bad content is forgotten until the next start only: {}", name(), error.what());
  }
  return false;
}

}  // namespace varve::fuse
