#include "fuse/daemon/loader/exit_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace varve::fuse {
namespace {

constexpr unsigned kReadsOfAnExit = 3;
// Parts that are skipped have been read before, for something else.
constexpr std::size_t kMaxSkipped = 3;

}  // namespace

void ExitTable::add(std::size_t turn, const std::vector<DeviceExtent>& parts) {
  const std::lock_guard guard(mutex_);
  Library library;
  for (const auto& part : parts) {
    if (places_.size() == kMaxParts) break;
    if (!places_.try_emplace(part.place, Place{turn, library.parts.size()}).second) continue;
    library.parts.push_back(part);
  }
  if (library.parts.empty()) return;
  libraries_.emplace(turn, std::move(library));
  any_.store(true, std::memory_order_relaxed);
}

std::vector<DeviceExtent> ExitTable::note_read(std::uint32_t device, ByteRange device_range) {
  if (!any_.load(std::memory_order_relaxed)) return {};
  const std::lock_guard guard(mutex_);
  auto entry = places_.upper_bound({device, device_range.offset});
  if (entry != places_.begin()) --entry;                            // it may reach into the range
  std::map<std::size_t, std::pair<std::size_t, std::size_t>> seen;  // by library, its first and last part
  for (; entry != places_.end() && entry->first < DevicePlace{device, device_range.end()}; ++entry) {
    const auto& [library, part] = entry->second;
    if (!ByteRange{entry->first.offset, libraries_.at(library).parts[part].length}.overlaps(device_range)) continue;
    if (entry->first.device != device) continue;
    const auto [known, fresh] = seen.try_emplace(library, part, part);
    if (!fresh) known->second = {std::min(known->second.first, part), std::max(known->second.second, part)};
  }
  for (const auto& [number, range] : seen) {
    auto& library = libraries_.at(number);
    const auto& [first, last] = range;
    const bool goes_on = library.reads > 0 && last >= library.next && first <= library.next + kMaxSkipped;
    library.reads = goes_on ? library.reads + 1 : 1;
    library.next = last + 1;
    if (library.reads == kReadsOfAnExit) return take_from(number);
  }
  return {};
}

std::vector<DeviceExtent> ExitTable::take_from(std::size_t library) {
  std::vector<DeviceExtent> taken;
  auto begin = libraries_.at(library).next;
  while (!libraries_.empty() && libraries_.begin()->first <= library) {
    const auto last = std::prev(libraries_.upper_bound(library));
    const auto& parts = last->second.parts;
    taken.insert(taken.end(), parts.begin() + std::ptrdiff_t(std::min(begin, parts.size())), parts.end());
    begin = 0;
    libraries_.erase(last);
  }
  std::erase_if(places_, [&](const auto& place) { return place.second.library <= library; });
  any_.store(!places_.empty(), std::memory_order_relaxed);
  return taken;
}

}  // namespace varve::fuse
