#pragma once
// Times of files that are packed anew: which of them nobody would miss, so that a layer of an earlier version can stand
// for one that differs in nothing else; and how late ones are set back.
//
// Python takes bytecode only while its source has the time that the bytecode's header names: else it compiles at every
// import. So a time may change only together with the headers that name it. A source is *free* if all its bytecode lies
// in the same unit and either counts now (its header names the source's time and size) or asks for no time at all. The
// times of free sources and of all other files and links are left out of timeless_digest(), and of bytecode that counts
// the header's time is. Two units of equal timeless digest therefore hold the same files, and whichever is mounted,
// bytecode counts for its source or does not, alike.
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/base/work.h"
#include "core/index/merge/bytecode.h"
#include "core/index/merge/flat_tree.h"
#include "indexer/internal/content_feed.h"
#include "indexer/pack_units.h"

namespace varve::indexer {

// One name of bytecode whose source is a file of the tree.
struct PackedBytecode {
  std::string_view source;   // first name of its inode, key of the tree
  bool with_source = false;  // both are in one unit
  index::BytecodeBinding binding = index::BytecodeBinding::kNone;
  Digest timeless;                 // kTime: SHA-256 of the content with zeros for the time
  std::optional<Digest> set_back;  // kTime, and the source is later than `latest`: the same with that time
};
using BytecodeByPath = std::unordered_map<std::string_view, PackedBytecode>;

// Where bytecode is read from.
struct BytecodeOrigin {
  const ContentOrigin& content;
  SpooledLayers& spooled;
  unsigned decoders = 1;
};

// The bytecode that these units hold. Reads all of its content and checks it against the index; what it reads is added
// to the progress. Throws CorruptData for content that is not what the index says, and what reading throws. `latest` as
// for SetBackTimes.
BytecodeByPath read_bytecode(const BytecodeOrigin& origin, const index::FlatTree& tree,
                             const std::vector<const PackUnit*>& units, std::optional<std::int64_t> latest,
                             const Work& work);

// Sources that are not free, by all their names. `bytecode` may lack that of units whose timeless digest is not asked
// for.
std::unordered_set<std::string_view> bound_sources(const index::FlatTree& tree, const BytecodeByPath& bytecode);

// What unit_digest() is, without the times of directories and those that nobody would miss.
Digest timeless_digest(const std::vector<UnitEntry>& entries, const BytecodeByPath& bytecode,
                       const std::unordered_set<std::string_view>& bound);

// Entries that are later than `latest` (seconds since 1970) get that time, and the headers of their bytecode too. A
// source keeps its time if bytecode of it is not rewritten, or does not count now. The times outlive the entries' use.
class SetBackTimes {
 public:
  // `bytecode`: of all units.
  SetBackTimes(const index::FlatTree& tree, const std::vector<PackUnit>& units, const BytecodeByPath& bytecode,
               std::int64_t latest);
  // Of an entry of the units, or a directory; nullptr if it is early enough or stays.
  const WrittenTime* find(const UnitEntry& entry);

 private:
  bool too_late(const UnitEntry& entry) const;

  const BytecodeByPath& bytecode_;
  std::int64_t latest_;
  std::unordered_set<std::string_view> stay_;  // first names of sources
  std::deque<WrittenTime> times_;
};

}  // namespace varve::indexer
