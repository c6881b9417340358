#pragma once
// What the scanned notebooks say about distributions.
#include "analyzer/usage/database.h"
#include "analyzer/usage/internal/resolver.h"
#include "core/sql/connection.h"

#include <map>
#include <set>

namespace varve::usage {

// Import names to distributions over several images.
class FleetResolver {
 public:
  // `image_id` 0: all images with an inventory.
  FleetResolver(SqlConnection& sql, std::int64_t image_id);
  // Ascending; over all the images.
  const Owners& of_module(const std::string& dotted);
  bool can_use_gpu(std::int64_t distribution) const;

 private:
  std::vector<ImageResolver> images_;
  std::map<std::string, Owners> known_;
};

struct NotebookUse {
  std::uint64_t notebooks = 0;
  std::uint64_t optional = 0;
};

// Fills the notebooks' part of the snapshot; returns how many distinct notebooks use each distribution.
std::map<std::int64_t, NotebookUse> read_notebooks(SqlConnection& sql, FleetResolver& resolver,
                                                   const std::map<std::int64_t, std::string>& distribution_names,
                                                   Snapshot& into);

}  // namespace varve::usage
