#pragma once
// What notebooks import together, to be imported again in an image that was written anew.
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/usage/database.h"

namespace varve::prune {

struct ImportSet {
  std::vector<std::string> modules;  // dotted, ascending, never empty: those that some distribution of the image owns
  std::string example;               // path of a notebook that imports just these
  std::uint64_t notebooks = 0;       // how many do, copies included
};

struct ImportSets {
  std::vector<ImportSet> sets;  // most notebooks first, then by modules
  std::uint64_t notebooks = 0;  // Python notebooks in the database, copies included
  std::uint64_t covered = 0;    // of these: theirs is among `sets`, or they import nothing of the image
  std::uint64_t left_out = 0;   // distinct sets beyond `at_most`
};

// Each set once, resolved by the inventory that the database has of `image`; empty sets if it has none.
ImportSets replay_sets(usage::Database& database, const Digest& image, std::size_t at_most = 5'000);

}  // namespace varve::prune
