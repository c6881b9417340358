#pragma once
// What pack_layers packs: the components of a placement as lists of tar entries, each with a digest that says when its
// bytes are the same again.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/merge/flat_tree.h"
#include "core/index/merge/placement.h"
#include "indexer/pack_layers.h"

namespace varve::indexer {

// What is written of an entry whose time is set back.
struct WrittenTime {
  std::int64_t mtime_seconds = 0;
  std::uint32_t mtime_nanoseconds = 0;
  std::optional<Digest> content;         // of bytecode whose header is written with another time of its source; else as
                                         // it is
  std::int64_t bytecode_of_seconds = 0;  // that time
};

// One entry of the tar of a layer.
struct UnitEntry {
  std::string_view path;  // without leading "/"; of the tree or of the placement's added files, which must outlive it
  std::string_view link_of;  // a hard link to this earlier entry of the same unit; "" = its content is written here
  const index::FlatEntry* entry = nullptr;  // of the tree; null: `added`
  const index::AddedFile* added = nullptr;  // written with owner 0:0 and no xattrs
  bool neutral_time =
      false;  // a directory that others share: its time is written as 0 here, and as it is by the layer of directories
  const WrittenTime* set_back = nullptr;  // null: time and content of `entry` or `added`

  std::int64_t mtime_seconds() const;
  std::uint32_t mtime_nanoseconds() const;
  Digest content() const;  // of a regular file of the tree that is not empty
};

struct PackUnit {
  ComponentFacts facts;
  std::vector<UnitEntry>
      entries;  // by path in byte order, parents of what it holds included (those that layers gave), the root not
};

struct PackUnits {
  std::vector<PackUnit> units;  // by name; those without a file are left out
  // Directories that no unit carries with their own time: shared ones, empty ones, the root, those that hold only what
  // stays beneath. Not those that no layer gives.
  std::vector<std::string_view> directories;
};

inline constexpr std::string_view kSystemComponent = "system";  // what no component of the placement holds
inline constexpr std::string_view kAddedComponent = "added";    // the placement's added files

// Every file of the tree that is not removed and does not stay beneath (in a layer that is kept as is; to be answered
// alike for all names of an inode) comes into exactly one unit: all names of an inode into that of the first one left.
// A component above `max_layer_bytes` is cut between files into units "NAME//2of3", at places that depend on names and
// sizes near them only, so that a change at one place leaves most other units as they are; a single file above it is a
// unit of its own, and pack_layers() will refuse it. A directory is removed with its files where removing left none
// below it and it was not empty before. Tree and placement must outlive the result. Throws UsageError for a component
// that is there twice or a path in two components, and Unsupported for a file whose content no digest is known of
// (kMaxHoleBytes).
PackUnits cut_into_units(const index::FlatTree& tree, const index::Placement& placement,
                         const std::function<bool(std::string_view path)>& stays_in_kept, const PackLimits& limits);

// What counts where times may differ.
struct TimelessRule {
  std::function<bool(const UnitEntry&)> counts;            // whether its time does
  std::function<const Digest*(const UnitEntry&)> content;  // what stands for its content; nullptr: the content itself
};

// Over everything the entries' tar bytes are made of. Equal digests mean equal tar bytes of a writer that depends on
// nothing else; it does not depend on what else the image holds. With a rule (null: none) it is another digest, over
// what the rule lets count.
Digest unit_digest(const std::vector<UnitEntry>& entries, const TimelessRule* timeless = nullptr);

}  // namespace varve::indexer
