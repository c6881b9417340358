#pragma once
// From what starts read to groups: which bytes each start's pack has, and which first read sends for it. Packs bring
// each other: what the pack of numpy brings is not in that of pandas, whose start reads numpy's trigger.
//
// What starts share that is none itself (scipy.sparse) is in the pack of each. As a group of its own it was tried: the
// registry has less, but starts come to its files in different orders and keep what they read before its trigger: who
// imports numpy, pandas and sklearn was sent a tenth more.
#include <cstdint>
#include <string>
#include <vector>

#include "core/index/format/start_packs.h"
#include "indexer/packs/file_places.h"
#include "indexer/packs/stream_ranges.h"

namespace varve::indexer {

// A pack costs a request: a start that adds less to what others bring has none.
inline constexpr std::uint64_t kLeastPackBytes = 32 << 10;  // stream side

// What one start read.
struct StartReads {
  // Starts are taken in this order, within one in ascending order of bytes: an import that a kernel's start does by
  // itself shall not be a further pack of it, nor shall a command that imports many libraries hold what is theirs.
  // kPython: and what programs begin with.
  enum class Turn : std::uint8_t { kPython, kProgramOfImage, kImport, kCommand };
  Turn turn = Turn::kImport;
  index::StartGroup::Kind kind = index::StartGroup::Kind::kImport;
  std::string name;
  std::vector<PackRange> reads;  // in order; no byte twice
};

// What both of two recordings of a start have of files. In the order in which the first one came to each 4 MiB of a
// file; within these ascending.
std::vector<PackRange> common_reads(const std::vector<PackRange>& first, const std::vector<PackRange>& second,
                                    const FilePlaces& places);

struct GroupedStart {
  index::StartGroup::Kind kind = index::StartGroup::Kind::kImport;
  std::string name;
  PackRange trigger;            // a file's whole content, or run of it; a part of one where no file is the group's own
  std::vector<PackRange> pack;  // in order
  bool operator==(const GroupedStart&) const = default;
};

// Groups in the order in which they were taken. `there`: those that there are already, taken first. A start's pack is
// what it reads less the packs of groups taken before whose triggers it reads; one with nothing that no start before
// read, or with less than kLeastPackBytes, makes no group. Each kind and name is there once at most.
std::vector<GroupedStart> group_starts(std::vector<StartReads> starts, const FilePlaces& places,
                                       const std::vector<GroupedStart>& there = {});

}  // namespace varve::indexer
