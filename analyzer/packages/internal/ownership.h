#pragma once
// Who owns which file: many to many, counted.
#include <cstdint>
#include <vector>

#include "analyzer/packages/internal/joins.h"

namespace varve::packages::internal {

inline constexpr std::size_t kMaxOwners =
    256;  // of one path, or in one package: more only somebody makes who wants our memory

// Distributions are numbered as in the inventory.
class Ownership {
 public:
  // Bytecode belongs to the owner of its source; dpkg's own files are dpkg's alone.
  Ownership(const FileTable& table, const std::vector<Installed>& installed);

  // Ascending; empty: nobody's.
  const std::vector<std::uint32_t>& of(FileId file) const { return sets_[set_of_[file]]; }
  // Equal numbers mean equal sets; 0 is the empty one.
  std::uint32_t set_of(FileId file) const { return set_of_[file]; }
  const std::vector<std::uint32_t>& set(std::uint32_t number) const { return sets_[number]; }
  // Number of the union of two sets; of the larger one alone where the union could have more than kMaxOwners.
  std::uint32_t unite(std::uint32_t one, std::uint32_t other);

  // Fills files, bytes, shared files, compressed bytes, layers.
  void count_into(const FileTable& table, bool has_layers, std::vector<Distribution>& distributions) const;

 private:
  std::uint32_t number_of(std::vector<std::uint32_t> set);
  void add(FileId file, std::uint32_t distribution) { set_of_[file] = unite(set_of_[file], number_of({distribution})); }

  std::vector<std::vector<std::uint32_t>> sets_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> numbers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> unions_;
  std::vector<std::uint32_t> set_of_;
};

}  // namespace varve::packages::internal
