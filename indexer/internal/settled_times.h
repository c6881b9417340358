#pragma once
// Which times the components of an image get that is packed anew, and which layers of the previous version may
// therefore stand for them: what repack_image() asks about RepackTimes.
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/work.h"
#include "core/index/merge/flat_tree.h"
#include "core/index/merge/repack_times.h"
#include "indexer/internal/packed_times.h"
#include "indexer/layout_record.h"
#include "indexer/pack_layers.h"
#include "indexer/pack_units.h"

namespace varve::indexer {

// For one thread. Tree and units must outlive it; the units point to times that it owns.
class SettledTimes {
 public:
  // Sets late times back, says of each unit what it is without times, and where a component of the previous version
  // differs in nothing else gives the unit that one's digest. `previous`: how that version was packed, null: there is
  // none. `writer`: a component by another one does not stand for anything. Throws what read_bytecode() throws.
  SettledTimes(const index::RepackTimes& times, const index::FlatTree& tree, std::vector<PackUnit>& units,
               const LayoutRecord* previous, std::string_view writer, const BytecodeOrigin& origin, const Work& work);
  SettledTimes(const SettledTimes&) = delete;
  SettledTimes& operator=(const SettledTimes&) = delete;

  // What a directory is written with that no unit has; null: as it is.
  const WrittenTime* find(const UnitEntry& entry);
  // Gives those components whose layer is written after all the digests of what they are in this version.
  void restore_contents(const std::vector<PackedLayer>& layers, std::vector<ComponentFacts>& facts) const;
  // What the component is in this version, if that of the previous one was to stand for it; else null.
  const Digest* own_content(std::string_view component) const;
  // The layer is one of the previous version that has other times than this one.
  bool stands_in(const PackedLayer& layer) const;

 private:
  void set_back(const index::FlatTree& tree, std::vector<PackUnit>& units, std::int64_t latest);

  BytecodeByPath bytecode_;
  std::unique_ptr<SetBackTimes> set_back_;  // of `bytecode_`; null: none are set back
  std::map<std::string, Digest, std::less<>> own_contents_;
};

}  // namespace varve::indexer
