#include "fuse/daemon/loader/exit_table.h"

#include <algorithm>
#include <utility>

namespace varve::fuse {
namespace {

constexpr unsigned kReadsOfAnExit = 3;
// Parts that are skipped have been read before, for something else.
constexpr std::size_t kMaxSkipped = 3;

}  // namespace

void ExitTable::add(const std::vector<ExitPart>& parts) {
  const std::lock_guard guard(mutex_);
  Library library;
  for (const auto& part : parts) {
    if (turns_.size() == kMaxParts) break;
    if (!turns_.try_emplace(part.place, Turn{libraries_.size(), library.parts.size()}).second) continue;
    library.parts.push_back(part);
  }
  if (library.parts.empty()) return;
  libraries_.push_back(std::move(library));
  any_.store(true, std::memory_order_relaxed);
}

std::vector<ExitPart> ExitTable::note_read(std::uint32_t device, ByteRange device_range) {
  if (!any_.load(std::memory_order_relaxed)) return {};
  const std::lock_guard guard(mutex_);
  auto entry = turns_.upper_bound({device, device_range.offset});
  if (entry != turns_.begin()) --entry;                             // it may reach into the range
  std::map<std::size_t, std::pair<std::size_t, std::size_t>> seen;  // by library, its first and last part
  for (; entry != turns_.end() && entry->first < DevicePlace{device, device_range.end()}; ++entry) {
    const auto& [library, part] = entry->second;
    if (!ByteRange{entry->first.offset, libraries_[library].parts[part].length}.overlaps(device_range)) continue;
    if (entry->first.device != device) continue;
    const auto [known, fresh] = seen.try_emplace(library, part, part);
    if (!fresh) known->second = {std::min(known->second.first, part), std::max(known->second.second, part)};
  }
  for (const auto& [number, range] : seen) {
    auto& library = libraries_[number];
    const auto& [first, last] = range;
    const bool goes_on = library.reads > 0 && last >= library.next && first <= library.next + kMaxSkipped;
    library.reads = goes_on ? library.reads + 1 : 1;
    library.next = last + 1;
    if (library.reads == kReadsOfAnExit) return take_from(number);
  }
  return {};
}

std::vector<ExitPart> ExitTable::take_from(std::size_t library) {
  std::vector<ExitPart> taken;
  for (std::size_t left = library + 1; left-- > 0;) {
    auto parts = std::exchange(libraries_[left].parts, {});
    const auto begin = std::min(left == library ? libraries_[left].next : 0, parts.size());
    taken.insert(taken.end(), parts.begin() + std::ptrdiff_t(begin), parts.end());
  }
  std::erase_if(turns_, [&](const auto& turn) { return turn.second.library <= library; });
  any_.store(!turns_.empty(), std::memory_order_relaxed);
  return taken;
}

}  // namespace varve::fuse
