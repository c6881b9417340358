#include "indexer/packs/group_starts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace varve::indexer {
namespace {

constexpr std::string_view kSettings = "etc/";
constexpr std::uint64_t kOrderedBytes = 4 << 20;

class Grouping {
 public:
  Grouping(const std::vector<StartReads>& starts, const FilePlaces& places) : starts_(starts), places_(places) {
    for (const auto& start : starts) reads_.emplace_back().add(start.reads);
  }

  void take(const GroupedStart& group) {
    read_.add(group.pack);
    taken_.push_back(group);
  }

  std::optional<GroupedStart> take(std::size_t number) {
    const auto& start = starts_[number];
    auto pack = beyond_others(number);
    std::optional<GroupedStart> group;
    if (bytes_of(pack) >= kLeastPackBytes)
      if (const auto trigger = trigger_of(pack, number))
        group = {.kind = start.kind, .name = start.name, .trigger = *trigger, .pack = std::move(pack)};
    if (group) taken_.push_back(*group);
    read_.add(start.reads);
    return group;
  }

 private:
  // What it reads before it comes to the trigger of another group it cannot wait for from that.
  std::vector<PackRange> beyond_others(std::size_t number) const {
    std::vector<const GroupedStart*> awaited;
    for (const auto& group : taken_)
      if (reads_[number].touches(group.trigger)) awaited.push_back(&group);
    StreamRanges brought;
    std::vector<PackRange> beyond;
    for (const auto& range : starts_[number].reads) {
      StreamRanges read;
      read.add({range});
      const auto still_awaited = std::stable_partition(awaited.begin(), awaited.end(),
                                                       [&](const auto* group) { return read.touches(group->trigger); });
      for (auto begun = awaited.begin(); begun != still_awaited; ++begun) brought.add((*begun)->pack);
      awaited.erase(awaited.begin(), still_awaited);
      for (const auto& piece : brought.without(range)) append_joined(beyond, piece);
    }
    return beyond;
  }

  // Starts that would be sent a pack of which they do not read most.
  std::vector<std::size_t> strangers_to(const std::vector<PackRange>& pack, std::size_t number) const {
    std::vector<std::size_t> strangers;
    const auto bytes = bytes_of(pack);
    for (std::size_t other = 0; other < starts_.size(); ++other) {
      if (other == number) continue;
      std::uint64_t common = 0;
      for (const auto& range : pack) common += bytes_of(reads_[other].within(range));
      if (common < bytes / 4 * 3) strangers.push_back(other);
    }
    return strangers;
  }

  // Of files that no start before read the first that no stranger reads (json, which many import, is no sign of a
  // kernel; settings of the system are read by whatever begins a session), or that the fewest do; else the first bytes
  // that no start before read. Absent if all were read before.
  std::optional<PackRange> trigger_of(const std::vector<PackRange>& pack, std::size_t number) const {
    const auto strangers = strangers_to(pack, number);
    std::optional<PackRange> best, own_bytes;
    auto fewest = strangers.size() + 2;
    std::set<const FilePlace*> seen;
    for (const auto& range : pack) {
      for (const auto& [piece, place] : places_.pieces(range)) {
        if (const auto own = read_.without(piece); !own_bytes && !own.empty()) own_bytes = own.front();
        if (!seen.insert(place).second || read_.touches(place->content)) continue;
        auto readers = std::size_t(
            std::ranges::count_if(strangers, [&](std::size_t other) { return reads_[other].touches(place->content); }));
        if (place->path->starts_with(kSettings)) readers = strangers.size() + 1;
        if (readers >= fewest) continue;
        best = place->content;
        fewest = readers;
        if (readers == 0) return best;
      }
    }
    return best ? best : own_bytes;
  }

  const std::vector<StartReads>& starts_;
  const FilePlaces& places_;
  std::vector<StreamRanges> reads_;  // of each start
  StreamRanges read_;                // by those that were taken
  std::vector<GroupedStart> taken_;
};

}  // namespace

std::vector<PackRange> common_reads(const std::vector<PackRange>& first, const std::vector<PackRange>& second,
                                    const FilePlaces& places) {
  StreamRanges again;
  again.add(second);
  // By a piece of a file: in which order the kernel asks for its pages is chance.
  using Piece = std::pair<const FilePlace*, std::uint64_t>;
  std::map<Piece, std::size_t> numbers;
  std::vector<std::vector<PackRange>> read;
  for (const auto& range : first) {
    for (const auto& [piece, place] : places.pieces(range)) {
      for (auto [layer, left] : again.within(piece)) {
        while (left.length != 0) {
          const auto in_content = left.offset - place->content.stream_range.offset;
          const auto length = std::min(left.length, kOrderedBytes - in_content % kOrderedBytes);
          const auto [at, is_new] = numbers.try_emplace({place, in_content / kOrderedBytes}, read.size());
          if (is_new) read.emplace_back();
          read[at->second].push_back({layer, {.offset = left.offset, .length = length}});
          left = {.offset = left.offset + length, .length = left.length - length};
        }
      }
    }
  }
  std::vector<PackRange> common;
  for (auto& ranges : read) {
    std::ranges::sort(ranges, {}, [](const PackRange& range) { return range.stream_range.offset; });
    for (const auto& range : ranges) append_joined(common, range);
  }
  return common;
}

std::vector<GroupedStart> group_starts(std::vector<StartReads> starts, const FilePlaces& places,
                                       const std::vector<GroupedStart>& there) {
  std::ranges::sort(starts, {}, [](const StartReads& start) {
    return std::tuple(start.turn, bytes_of(start.reads), start.kind, start.name);
  });
  Grouping grouping(starts, places);
  for (const auto& group : there) grouping.take(group);
  std::vector<GroupedStart> groups;
  for (std::size_t i = 0; i < starts.size(); ++i)
    if (auto group = grouping.take(i)) groups.push_back(std::move(*group));
  return groups;
}

}  // namespace varve::indexer
