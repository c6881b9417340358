#include "indexer/pack_units.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/errors.h"
#include "core/base/text/image_path.h"
#include "core/codec/tar_block.h"

namespace varve::indexer {
namespace {

using index::FlatEntry;

constexpr std::size_t kPlainNameBytes =
    100;  // longer ones, and what else a plain header cannot say, take an extended one

// Who has the files below a directory: the number of a unit, or one of these.
using Owner = std::uint32_t;
constexpr Owner kNobody = std::numeric_limits<Owner>::max();
constexpr Owner kShared = kNobody - 1;
constexpr Owner kInKept = kNobody - 2;

std::uint64_t hash_of(std::string_view text) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3;
  return hash;
}

// About what the entry takes in a tar.
std::uint64_t tar_bytes(const UnitEntry& entry) {
  const auto size = entry.added != nullptr                                             ? entry.added->content.size()
                    : entry.link_of.empty() && entry.entry->type == FileType::kRegular ? entry.entry->size
                                                                                       : 0;
  auto bytes = codec::kTarBlock + codec::next_tar_block(size);
  const bool extended = entry.path.size() > kPlainNameBytes ||
                        (entry.entry != nullptr && ((entry.entry->mtime_nanoseconds != 0 && !entry.neutral_time) ||
                                                    !entry.entry->xattrs.empty()));
  if (extended) bytes += 2 * codec::kTarBlock;
  return bytes;
}

class DigestWriter {
 public:
  void number(std::uint64_t value) {
    std::array<std::byte, 8> bytes;
    store_le(bytes.data(), value);
    sha_.update(bytes);
  }
  void text(std::string_view value) {
    number(value.size());
    sha_.update(as_bytes(value));
  }
  void digest(const Digest& value) { sha_.update(value.raw()); }
  Digest finish() { return sha_.finish(); }

 private:
  Sha256 sha_;
};

class UnitCutter {
 public:
  UnitCutter(const index::FlatTree& tree, const index::Placement& placement,
             const std::function<bool(std::string_view)>& stays_in_kept, const PackLimits& limits)
      : tree_(tree), placement_(placement), stays_in_kept_(stays_in_kept), limits_(limits) {}

  PackUnits run() {
    number_components();
    collect_files();
    for (auto& part : parts_) cut(part);
    for (Owner unit = 0; unit < result_.units.size(); ++unit) {
      for (const auto& file : result_.units[unit].entries) claim_parents(file.path, unit);
    }
    for (const auto path : kept_layers_) claim_parents(path, kInKept);
    for (Owner unit = 0; unit < result_.units.size(); ++unit) add_parents(unit);
    list_directories();
    std::ranges::sort(result_.units, {}, [](const PackUnit& unit) -> const std::string& { return unit.facts.name; });
    for (auto& unit : result_.units) {
      for (const auto& entry : unit.entries) unit.facts.bytes += tar_bytes(entry);
      unit.facts.content = unit_digest(unit.entries);
    }
    return std::move(result_);
  }

 private:
  struct Part {  // a component
    std::string name, version;
    index::Tier tier = index::Tier::kSystem;
    std::vector<UnitEntry> files;
  };
  struct Directory {
    Owner owner = kNobody;
    bool removed_below = false, empty_below = false;
  };

  std::uint32_t add_part(std::string_view name, std::string_view version, index::Tier tier) {
    if (!numbers_.emplace(name, std::uint32_t(parts_.size())).second)
      fail<UsageError>("component {} is there twice", name);
    parts_.push_back({.name = std::string(name), .version = std::string(version), .tier = tier, .files = {}});
    return std::uint32_t(parts_.size() - 1);
  }

  void number_components() {
    for (const auto& component : placement_.components) {
      const auto number = add_part(component.name, component.version, component.tier);
      for (const auto& path : component.paths) {
        if (const auto [found, is_new] = part_of_.emplace(path, number); !is_new && found->second != number)
          fail<UsageError>("{} is in components {} and {}", path, parts_[found->second].name, component.name);
      }
    }
    const auto system = numbers_.find(kSystemComponent);
    system_ = system != numbers_.end() ? system->second : add_part(kSystemComponent, "", index::Tier::kSystem);
    for (const auto& path : placement_.removed) removed_.insert(path);
    if (placement_.added.empty()) return;
    const auto added = add_part(kAddedComponent, "", index::Tier::kHot);
    for (const auto& file : placement_.added) {
      if (!added_.insert(file.path).second) fail<UsageError>("{} is added twice", file.path);
      parts_[added].files.push_back(
          {.path = file.path, .link_of = {}, .entry = nullptr, .added = &file, .neutral_time = false});
    }
    std::ranges::sort(parts_[added].files, {}, &UnitEntry::path);
  }

  std::uint32_t part_of(std::string_view path) const {
    const auto found = part_of_.find(path);
    return found == part_of_.end() ? system_ : found->second;
  }

  void collect_files() {
    struct Leader {
      std::string_view path;
      std::uint32_t part = 0;
    };
    std::unordered_map<std::string_view, Leader>
        leaders;  // of inodes with several names: by the first name in the tree, the first name that is left
    for (const auto& [path, entry] : tree_.entries) {
      if (entry.type == FileType::kDirectory) {
        directories_.emplace(path, Directory());
        continue;
      }
      if (removed_.contains(path) || added_.contains(path)) {
        for (auto folder = parent_of(path); !folder.empty(); folder = parent_of(folder)) {
          if (std::exchange(directories_.at(folder).removed_below, true)) break;
        }
        continue;
      }
      if (stays_in_kept_ && stays_in_kept_(path)) {
        kept_layers_.push_back(path);
        continue;
      }
      if (entry.type == FileType::kRegular && entry.size != 0 && entry.content_digest == Digest())
        fail<Unsupported>(
            "{}: its digest is not known, for its holes are too large; its layer has to be taken over as it is", path);
      UnitEntry file{.path = path, .link_of = {}, .entry = &entry, .added = nullptr, .neutral_time = false};
      auto part = part_of(path);
      if (!entry.link_of.empty()) {
        const bool first_is_left = !removed_.contains(entry.link_of) && !added_.contains(entry.link_of);
        const auto [leader, is_new] = leaders.try_emplace(
            entry.link_of, first_is_left ? Leader{entry.link_of, part_of(entry.link_of)} : Leader{path, part});
        if (leader->second.path != path) file.link_of = leader->second.path;
        part = leader->second.part;
      }
      parts_[part].files.push_back(file);
    }
  }

  // Where the pieces of a component begin: numbers of its files that are no links.
  std::vector<std::size_t> cuts_of(const Part& part) const {
    std::map<std::string_view, std::uint64_t> linked;  // entries of the links, by what they lead to
    std::uint64_t total = 0, inodes = 0;
    for (const auto& file : part.files) {
      total += tar_bytes(file);
      if (file.link_of.empty()) {
        ++inodes;
      } else {
        linked[file.link_of] += tar_bytes(file);
      }
    }
    std::vector<std::size_t> cuts{0};
    if (total <= limits_.max_layer_bytes) return cuts;
    // From a quarter of the size on a cut may come before any file whose name says so: what is put in or taken out
    // moves cuts near it only.
    const auto least = limits_.max_layer_bytes / 4;
    const auto one_in =
        std::bit_floor(std::max<std::uint64_t>(1, std::uint64_t(double(inodes) * double(least) / double(total))));
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < part.files.size(); ++i) {
      if (!part.files[i].link_of.empty()) continue;
      const auto links = linked.find(part.files[i].path);
      const auto own = tar_bytes(part.files[i]) + (links == linked.end() ? 0 : links->second);
      // Parents are not counted: an entry in 16 of room for them.
      const bool full = bytes + own > limits_.max_layer_bytes - limits_.max_layer_bytes / 16;
      if (bytes != 0 && (full || (bytes >= least && hash_of(part.files[i].path) % one_in == 0))) {
        cuts.push_back(i);
        bytes = 0;
      }
      bytes += own;
    }
    return cuts;
  }

  void cut(Part& part) {
    if (part.files.empty()) return;
    const auto cuts = cuts_of(part);
    const auto first = result_.units.size();
    for (std::size_t piece = 0; piece < cuts.size(); ++piece) {
      auto name = cuts.size() == 1 ? part.name : fmt::format("{}//{}of{}", part.name, piece + 1, cuts.size());
      result_.units.push_back(
          {.facts = {.name = std::move(name), .version = part.version, .tier = part.tier, .bytes = 0, .content = {}},
           .entries = {}});
    }
    std::unordered_map<std::string_view, std::size_t> piece_of;  // files that links may lead to
    std::size_t piece = 0;
    for (std::size_t i = 0; i < part.files.size(); ++i) {
      const auto& file = part.files[i];
      if (file.link_of.empty()) {
        while (piece + 1 < cuts.size() && cuts[piece + 1] <= i) ++piece;
        if (cuts.size() > 1) piece_of.emplace(file.path, piece);
      }
      result_.units[first + (file.link_of.empty() || cuts.size() == 1 ? piece : piece_of.at(file.link_of))]
          .entries.push_back(file);
    }
    part.files = {};
  }

  void claim_parents(std::string_view path, Owner owner) {
    for (auto folder = parent_of(path); !folder.empty(); folder = parent_of(folder)) {
      const auto found = directories_.find(folder);
      if (found == directories_.end()) continue;  // of an added file, in a folder that the tree does not have
      auto& known = found->second.owner;
      // Whoever has a directory has marked its parents too.
      if (known == owner || known == kShared) return;
      known = known == kNobody ? owner : kShared;
    }
  }

  // Directories between its files, before them. What lies below a directory is one stretch of the byte order, so each
  // is met once.
  void add_parents(Owner unit) {
    auto& entries = result_.units[unit].entries;
    std::vector<UnitEntry> folders;
    std::string_view before;
    for (const auto& file : entries) {
      const auto common = std::size_t(std::distance(before.begin(), std::ranges::mismatch(before, file.path).in1));
      for (auto slash = file.path.find('/', common); slash != std::string_view::npos;
           slash = file.path.find('/', slash + 1)) {
        const auto folder = file.path.substr(0, slash);
        const auto found = tree_.entries.find(folder);
        if (found == tree_.entries.end() || found->second.implied) continue;
        folders.push_back({.path = found->first,
                           .link_of = {},
                           .entry = &found->second,
                           .added = nullptr,
                           .neutral_time = directories_.at(folder).owner == kShared});
      }
      before = file.path;
    }
    std::ranges::sort(folders, {}, &UnitEntry::path);
    std::vector<UnitEntry> all;
    all.reserve(entries.size() + folders.size());
    std::ranges::merge(entries, folders, std::back_inserter(all), {}, &UnitEntry::path, &UnitEntry::path);
    entries = std::move(all);
  }

  void list_directories() {
    for (const auto& [path, directory] : directories_) {
      if (path.empty() || directory.owner != kNobody || directory.removed_below) continue;
      for (auto folder = path; !folder.empty(); folder = parent_of(folder)) {
        if (std::exchange(directories_.at(folder).empty_below, true)) break;
      }
    }
    for (const auto& [path, entry] : tree_.entries) {
      if (entry.type != FileType::kDirectory || entry.implied) continue;
      const auto& directory = directories_.at(path);
      const bool gone = !path.empty() && directory.owner == kNobody && !directory.empty_below;
      const bool carried = directory.owner < result_.units.size();
      if (!gone && !carried) result_.directories.push_back(path);
    }
  }

  const index::FlatTree& tree_;
  const index::Placement& placement_;
  const std::function<bool(std::string_view)>& stays_in_kept_;
  const PackLimits& limits_;
  std::vector<Part> parts_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::uint32_t system_ = 0;
  std::unordered_map<std::string_view, std::uint32_t> part_of_;
  std::unordered_set<std::string_view> removed_, added_;
  std::vector<std::string_view> kept_layers_;
  std::unordered_map<std::string_view, Directory> directories_;
  PackUnits result_;
};

}  // namespace

PackUnits cut_into_units(const index::FlatTree& tree, const index::Placement& placement,
                         const std::function<bool(std::string_view path)>& stays_in_kept, const PackLimits& limits) {
  return UnitCutter(tree, placement, stays_in_kept, limits).run();
}

std::int64_t UnitEntry::mtime_seconds() const {
  if (neutral_time) return 0;
  if (set_back != nullptr) return set_back->mtime_seconds;
  return added != nullptr ? added->mtime_seconds : entry->mtime_seconds;
}

std::uint32_t UnitEntry::mtime_nanoseconds() const {
  if (neutral_time || added != nullptr) return 0;
  return set_back != nullptr ? set_back->mtime_nanoseconds : entry->mtime_nanoseconds;
}

Digest UnitEntry::content() const {
  return set_back != nullptr && set_back->content ? *set_back->content : entry->content_digest;
}

Digest unit_digest(const std::vector<UnitEntry>& entries, const TimelessRule* timeless) {
  DigestWriter writer;
  writer.text(timeless == nullptr ? "varve unit 1" : "varve unit 1 without times");
  for (const auto& unit : entries) {
    writer.text(unit.path);
    if (unit.added != nullptr) {
      writer.text("added");
      writer.number(unit.added->mode);
      writer.number(std::uint64_t(unit.mtime_seconds()));
      writer.text(unit.added->content);
      continue;
    }
    const auto& entry = *unit.entry;
    const bool has_time = timeless == nullptr || timeless->counts(unit);
    writer.text(unit.link_of);
    for (const auto number :
         {std::uint64_t(entry.type), std::uint64_t(entry.mode), std::uint64_t(entry.uid), std::uint64_t(entry.gid),
          std::uint64_t(entry.device_major), std::uint64_t(entry.device_minor), entry.size,
          std::uint64_t(has_time ? unit.mtime_seconds() : 0), std::uint64_t(has_time ? unit.mtime_nanoseconds() : 0),
          std::uint64_t(entry.xattrs.size())})
      writer.number(number);
    for (const auto& [name, value] : entry.xattrs) {
      writer.text(name);
      writer.text(value);
    }
    writer.text(entry.symlink_target);
    const auto* without_time = timeless == nullptr ? nullptr : timeless->content(unit);
    if (timeless != nullptr) writer.text(fmt::format("{} {}", has_time, without_time != nullptr));
    writer.digest(without_time != nullptr ? *without_time : unit.content());
  }
  return writer.finish();
}

}  // namespace varve::indexer
