#include "indexer/internal/packed_times.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/errors.h"

namespace varve::indexer {
namespace {

using index::BytecodeBinding;
using index::FlatEntry;

constexpr std::array<std::byte, 4> kNoTime{};
constexpr std::size_t kBehindTime = index::kBytecodeTimeOffset + kNoTime.size();

struct Source {
  std::string_view first_name;
  const FlatEntry* entry = nullptr;
};

std::string_view first_name_of(std::string_view path, const FlatEntry& entry) {
  return entry.link_of.empty() ? path : std::string_view(entry.link_of);
}

// Absent for what is no bytecode, or has no file as its source.
std::optional<Source> source_of(const index::FlatTree& tree, std::string_view path) {
  const auto name = index::source_of_bytecode(path);
  if (name.empty()) return std::nullopt;
  const auto found = tree.entries.find(name);
  if (found == tree.entries.end() || found->second.type != FileType::kRegular) return std::nullopt;
  return Source{.first_name = first_name_of(found->first, found->second), .entry = &found->second};
}

bool holds(const PackUnit& unit, std::string_view path) {
  const auto found = std::ranges::lower_bound(unit.entries, path, {}, &UnitEntry::path);
  return found != unit.entries.end() && found->path == path;
}

// One content of bytecode, with the names it has in its unit.
struct Inode {
  const UnitEntry* leader = nullptr;
  Source source;
  std::vector<std::string_view> names;
  bool one_source = true;  // of all its names; one that is no bytecode has none
};

// In the order of the layers, so that they are read from front to back.
std::vector<Inode> inodes_of(const index::FlatTree& tree, const PackUnit& unit, BytecodeByPath& found) {
  std::unordered_map<std::string_view, Inode> inodes;  // by leader
  const auto leader_of = [](const UnitEntry& entry) { return entry.link_of.empty() ? entry.path : entry.link_of; };
  for (const auto& entry : unit.entries) {
    if (entry.added != nullptr || entry.entry->type != FileType::kRegular) continue;
    const auto source = source_of(tree, entry.path);
    if (!source) continue;
    found[entry.path] = {.source = source->first_name,
                         .with_source = holds(unit, index::source_of_bytecode(entry.path)),
                         .binding = BytecodeBinding::kNone,
                         .timeless = {},
                         .set_back = {}};
    auto& inode = inodes[leader_of(entry)];
    inode.one_source = inode.one_source && (inode.names.empty() || inode.source.entry == source->entry);
    inode.source = *source;
    inode.names.push_back(entry.path);
  }
  for (const auto& entry : unit.entries) {
    const auto inode = inodes.find(leader_of(entry));
    if (inode == inodes.end()) continue;
    if (entry.link_of.empty()) inode->second.leader = &entry;
    if (!found.contains(entry.path)) inode->second.one_source = false;
  }
  std::vector<Inode> list;
  for (auto& [path, inode] : inodes) {
    // What has holes, or is no bytecode of today, counts as it is.
    std::uint64_t at = 0;
    bool whole = inode.leader != nullptr && inode.one_source && inode.leader->entry->size >= index::kBytecodeHeadBytes;
    for (std::size_t i = 0; whole && i < inode.leader->entry->runs.size(); ++i) {
      const auto& run = inode.leader->entry->runs[i].run;
      whole = run.file_offset == at;
      at += run.length;
    }
    if (whole && at == inode.leader->entry->size) list.push_back(std::move(inode));
  }
  return list;
}

class BytecodeReader {
 public:
  BytecodeReader(const BytecodeOrigin& origin, const std::vector<Inode>& inodes, std::optional<std::int64_t> latest,
                 const Work& work)
      : latest_(latest), work_(work) {
    std::vector<index::TreeRun> runs;
    for (const auto& inode : inodes) {
      prepare_runs(origin.content, origin.spooled, inode.leader->path, *inode.leader->entry, work.cancel, runs);
      work_.progress.expect(inode.leader->entry->size);
    }
    feed_.emplace(origin.content, origin.spooled, runs, origin.decoders, work.cancel);
  }

  void read(const Inode& inode, BytecodeByPath& found) {
    Bytes head;
    Sha256 content, timeless, set_back;
    feed_->take(index::kBytecodeHeadBytes, work_.progress, [&](ByteView part) { append(head, part); });
    const auto& source = *inode.source.entry;
    const bool late = latest_ && source.mtime_seconds > *latest_;
    content.update(head);
    timeless.update(ByteView(head).first(index::kBytecodeTimeOffset));
    timeless.update(kNoTime);
    timeless.update(ByteView(head).subspan(kBehindTime));
    auto other_head = head;
    if (late) index::set_bytecode_time(other_head, *latest_);
    set_back.update(other_head);
    feed_->take(inode.leader->entry->size - head.size(), work_.progress, [&](ByteView part) {
      content.update(part);
      timeless.update(part);
      if (late) set_back.update(part);
    });
    const auto is = content.finish();
    if (is != inode.leader->entry->content_digest)
      fail<CorruptData>("{}: its content is {}, the index says {}", inode.leader->path, is.to_string(),
                        inode.leader->entry->content_digest.to_string());
    const auto without_time = timeless.finish(), with_latest = set_back.finish();
    for (const auto name : inode.names) {
      auto& bytecode = found.at(name);
      bytecode.binding = index::bytecode_binding(name, head, source.mtime_seconds, source.size);
      if (bytecode.binding != BytecodeBinding::kTime) continue;
      bytecode.timeless = without_time;
      if (late) bytecode.set_back = with_latest;
    }
  }

 private:
  std::optional<std::int64_t> latest_;
  const Work work_;
  std::optional<ContentFeed> feed_;
};

}  // namespace

BytecodeByPath read_bytecode(const BytecodeOrigin& origin, const index::FlatTree& tree,
                             const std::vector<const PackUnit*>& units, std::optional<std::int64_t> latest,
                             const Work& work) {
  BytecodeByPath found;
  std::vector<Inode> inodes;
  for (const auto* unit : units) {
    auto more = inodes_of(tree, *unit, found);
    std::ranges::move(more, std::back_inserter(inodes));
  }
  std::ranges::sort(inodes, {}, [](const Inode& inode) {
    const auto& run = inode.leader->entry->runs.front();
    return std::pair(run.layer, run.run.stream_offset);
  });
  BytecodeReader reader(origin, inodes, latest, work);
  for (const auto& inode : inodes) reader.read(inode, found);
  return found;
}

std::unordered_set<std::string_view> bound_sources(const index::FlatTree& tree, const BytecodeByPath& bytecode) {
  std::unordered_set<std::string_view> bound;
  for (const auto& [path, entry] : tree.entries) {
    const auto source = source_of(tree, path);
    if (!source) continue;
    const auto known = bytecode.find(path);
    if (known == bytecode.end() || !known->second.with_source || known->second.binding == BytecodeBinding::kNone)
      bound.insert(source->first_name);
  }
  return bound;
}

Digest timeless_digest(const std::vector<UnitEntry>& entries, const BytecodeByPath& bytecode,
                       const std::unordered_set<std::string_view>& bound) {
  const TimelessRule rule{
      .counts =
          [&](const UnitEntry& unit) {
            return unit.entry->type != FileType::kDirectory && bound.contains(first_name_of(unit.path, *unit.entry));
          },
      .content = [&](const UnitEntry& unit) -> const Digest* {
        const auto known = bytecode.find(unit.path);
        if (known == bytecode.end() || !known->second.with_source || known->second.binding != BytecodeBinding::kTime)
          return nullptr;
        return &known->second.timeless;
      }};
  return unit_digest(entries, &rule);
}

SetBackTimes::SetBackTimes(const index::FlatTree& tree, const std::vector<PackUnit>& units,
                           const BytecodeByPath& bytecode, std::int64_t latest)
    : bytecode_(bytecode), latest_(latest) {
  std::unordered_set<std::string_view> written;  // sources
  for (const auto& unit : units) {
    for (const auto& entry : unit.entries)
      if (entry.entry != nullptr && entry.path.ends_with(".py")) written.insert(entry.path);
  }
  for (const auto& [path, entry] : tree.entries) {
    const auto source = source_of(tree, path);
    if (!source) continue;
    const auto known = bytecode.find(path);
    if (known == bytecode.end() || known->second.binding == BytecodeBinding::kNone ||
        !written.contains(source->first_name))
      stay_.insert(source->first_name);
  }
}

bool SetBackTimes::too_late(const UnitEntry& unit) const {
  if (unit.added != nullptr) return unit.added->mtime_seconds > latest_;
  const auto& entry = *unit.entry;
  return entry.mtime_seconds > latest_ || (entry.mtime_seconds == latest_ && entry.mtime_nanoseconds != 0);
}

const WrittenTime* SetBackTimes::find(const UnitEntry& unit) {
  const bool late = too_late(unit) && (unit.entry == nullptr || !stay_.contains(first_name_of(unit.path, *unit.entry)));
  const auto known = unit.link_of.empty() ? bytecode_.find(unit.path) : bytecode_.end();
  const bool of_late = known != bytecode_.end() && known->second.set_back && !stay_.contains(known->second.source);
  if (!late && !of_late) return nullptr;
  auto& time = times_.emplace_back();
  time.mtime_seconds = late ? latest_ : unit.mtime_seconds();
  time.mtime_nanoseconds = late ? 0 : unit.mtime_nanoseconds();
  if (of_late) {
    time.content = known->second.set_back;
    time.bytecode_of_seconds = latest_;
  }
  return &time;
}

}  // namespace varve::indexer
