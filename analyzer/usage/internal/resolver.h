#pragma once
// Which distributions of an image own a module or a path, from the inventory that the database keeps.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analyzer/packages/module_index.h"
#include "core/sql/connection.h"

namespace varve::usage {

using Owners = std::vector<std::int64_t>;  // numbers of distributions, ascending; several where they share it

// One image's answers. Read at the start, so an object made before an inventory is replaced still answers as it was.
class ImageResolver {
 public:
  ImageResolver() = default;                             // an image without an inventory: nobody owns anything
  enum class Paths : std::uint8_t { kRead, kLeaveOut };  // there are many, and reports need none
  ImageResolver(SqlConnection& sql, std::int64_t image_id, Paths paths = Paths::kRead);

  bool has_inventory() const { return has_inventory_; }
  const Owners& of_module(std::string_view dotted) const { return modules_.owners(dotted); }
  // As packages::Inventory::owners_of_path(): the path itself, else the first of its folders ("a/", "a/b/") that has
  // owners. Without leading "/".
  const Owners& of_path(std::string_view path) const;
  // Whether it can use an accelerator, in this image.
  bool can_use_gpu(std::int64_t distribution_id) const { return gpu_.contains(distribution_id); }

 private:
  bool has_inventory_ = false;
  packages::ModuleIndex<std::int64_t> modules_;
  std::unordered_map<std::string, Owners> paths_;
  std::set<std::int64_t> gpu_;
};

}  // namespace varve::usage
