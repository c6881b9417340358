#include "analyzer/usage/internal/resolver.h"

namespace varve::usage {
namespace {

const Owners kNobody;

}  // namespace

ImageResolver::ImageResolver(SqlConnection& sql, std::int64_t image_id, Paths paths) {
  sql.query("SELECT has_inventory FROM image WHERE id = $1", {image_id},
            [&](const SqlRow& row) { has_inventory_ = row.number(0) != 0; });
  if (!has_inventory_) return;
  sql.query("SELECT name, distribution_id FROM image_module WHERE image_id = $1 ORDER BY name, distribution_id",
            {image_id}, [&](const SqlRow& row) { modules_[row.text(0)].push_back(row.number(1)); });
  sql.query("SELECT DISTINCT distribution_id FROM package WHERE image_id = $1 AND gpu = 1", {image_id},
            [&](const SqlRow& row) { gpu_.insert(row.number(0)); });
  if (paths == Paths::kLeaveOut) return;
  sql.query("SELECT prefix, distribution_id FROM image_path WHERE image_id = $1 ORDER BY prefix, distribution_id",
            {image_id}, [&](const SqlRow& row) { paths_[row.text(0)].push_back(row.number(1)); });
}

const Owners& ImageResolver::of_path(std::string_view path) const {
  if (paths_.empty()) return kNobody;
  if (const auto found = paths_.find(std::string(path)); found != paths_.end()) return found->second;
  for (auto slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
    const auto found = paths_.find(std::string(path.substr(0, slash + 1)));
    if (found != paths_.end()) return found->second;
  }
  return kNobody;
}

}  // namespace varve::usage
