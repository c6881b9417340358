#pragma once
// What the scanned notebooks say about distributions.
#include "analyzer/usage/database.h"
#include "analyzer/usage/internal/resolver.h"
#include "core/sql/connection.h"

#include <map>
#include <set>

namespace varve::usage {

// Names in code to distributions over several images.
class FleetResolver {
 public:
  // `image_id` 0: all images with an inventory.
  FleetResolver(SqlConnection& sql, std::int64_t image_id);
  // Ascending, as all below; over all the images.
  const Owners& of_module(const std::string& dotted);
  // Whose program a command of this name runs.
  const Owners& of_program(const std::string& program) const;
  // Of a normalised name.
  const Owners& of_distribution(const std::string& name) const;
  // What a notebook's code names (notebooks::Import): a module, or where `module` is "" a command or a distribution.
  const Owners& of_name(const std::string& name, const std::string& module);
  bool can_use_gpu(std::int64_t distribution) const;

 private:
  void read_programs(SqlConnection& sql, std::int64_t image);
  void read_distributions(SqlConnection& sql, std::int64_t image);

  std::vector<ImageResolver> images_;
  std::map<std::string, Owners> known_, programs_, distributions_;
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
