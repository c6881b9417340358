#include "fuse/stream/unit_presence.h"

#include <algorithm>

#include "core/base/log.h"

namespace varve::fuse {

UnitPresence::UnitPresence(const std::filesystem::path& log_path, std::shared_ptr<const index::UnitTable> table,
                           std::uint64_t data_bytes)
    : table_(std::move(table)), states_(new std::atomic<State>[table_->size()]) {
  auto opened = PresenceLog::open(log_path, {.kind = PresenceIdentity::Kind::kUnits,
                                             .object = table_->layer_digest(),
                                             .cut = table_->cut(),
                                             .units = table_->size(),
                                             .data_bytes = data_bytes});
  log_ = std::move(opened.log);
  if (!opened.reason.empty()) log::warn("{}: {}", log_path.string(), opened.reason);
  const bool same = opened.found == PresenceLog::Found::kSame;
  for (std::size_t unit = 0; unit < table_->size(); ++unit) {
    const bool present = same && opened.present[unit] && table_->is_unit(unit);
    states_[unit] = present ? State::kPresent : State::kAbsent;
    held_ += present;
  }
}

bool UnitPresence::covers(ByteRange stream_range, bool take) const {
  if (stream_range.length == 0) return true;
  if (none()) return false;
  auto at = stream_range.offset;
  const auto [first, last] = table_->contents_of(stream_range);
  for (auto unit = first; unit < last; ++unit) {
    const auto range = table_->padded_range(unit);
    if (range.offset > at) return false;
    auto now = state(unit);
    if (now == State::kLeaving && take) {
      states_[unit].compare_exchange_strong(now, State::kPresent, std::memory_order_acq_rel);
      now = state(unit);
    }
    if (now != State::kPresent) return false;
    at = range.end();
  }
  return at >= stream_range.end();
}

bool UnitPresence::covers(ByteRange stream_range) const { return covers(stream_range, false); }
bool UnitPresence::take_back(ByteRange stream_range) { return covers(stream_range, true); }

bool UnitPresence::lacks_content(ByteRange stream_range) const {
  const auto [first, last] = table_->contents_of(stream_range);
  for (auto unit = first; unit < last; ++unit)
    if (state(unit) != State::kPresent) return true;
  return false;
}

std::uint64_t UnitPresence::held_bytes(ByteRange stream_range) const {
  if (none()) return 0;
  std::uint64_t bytes = 0;
  const auto [first, last] = table_->contents_of(stream_range);
  for (auto unit = first; unit < last; ++unit)
    if (state(unit) != State::kAbsent) bytes += table_->range(unit).length;
  return bytes;
}

void UnitPresence::set_present(std::size_t unit) {
  pending_.with([&](auto& pending) { pending.push_back(std::uint32_t(unit)); });
  if (states_[unit].exchange(State::kPresent, std::memory_order_acq_rel) == State::kAbsent)
    held_.fetch_add(1, std::memory_order_acq_rel);
}

bool UnitPresence::set_absent(std::size_t unit) {
  if (states_[unit].exchange(State::kAbsent, std::memory_order_acq_rel) == State::kAbsent) return false;
  held_.fetch_sub(1, std::memory_order_acq_rel);
  return true;
}

bool UnitPresence::begin_leaving(ByteRange stream_range) {
  if (none()) return false;
  bool any = false;
  const auto [first, last] = table_->contents_of(stream_range);
  for (auto unit = first; unit < last; ++unit) {
    auto expected = State::kPresent;
    any = states_[unit].compare_exchange_strong(expected, State::kLeaving, std::memory_order_acq_rel) || any;
  }
  return any;
}

void UnitPresence::stay(ByteRange stream_range) {
  if (none()) return;
  const auto [first, last] = table_->contents_of(stream_range);
  for (auto unit = first; unit < last; ++unit) {
    auto expected = State::kLeaving;
    states_[unit].compare_exchange_strong(expected, State::kPresent, std::memory_order_acq_rel);
  }
}

bool UnitPresence::any_present(ByteRange stream_range) const {
  if (none()) return false;
  const auto [first, last] = table_->contents_of(stream_range);
  for (auto unit = first; unit < last; ++unit)
    if (state(unit) == State::kPresent) return true;
  return false;
}

std::vector<std::uint32_t> UnitPresence::set_absent(ByteRange stream_range) {
  std::vector<std::uint32_t> gone;
  if (none()) return gone;
  const auto [first, last] = table_->contents_of(stream_range);
  for (auto unit = first; unit < last; ++unit)
    if (set_absent(unit)) gone.push_back(std::uint32_t(unit));
  return gone;
}

std::vector<std::uint32_t> UnitPresence::take_pending() {
  auto units = pending_.with([](auto& pending) { return std::exchange(pending, {}); });
  std::erase_if(units, [&](std::uint32_t unit) { return state(unit) == State::kAbsent; });
  return units;
}

void UnitPresence::put_back_pending(const std::vector<std::uint32_t>& units) {
  pending_.with([&](auto& pending) { pending.insert(pending.end(), units.begin(), units.end()); });
}

}  // namespace varve::fuse
