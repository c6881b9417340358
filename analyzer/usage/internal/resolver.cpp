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
  find_namespaces();
  sql.query("SELECT DISTINCT distribution_id FROM package WHERE image_id = $1 AND gpu = 1", {image_id},
            [&](const SqlRow& row) { gpu_.insert(row.number(0)); });
  if (paths == Paths::kLeaveOut) return;
  sql.query("SELECT prefix, distribution_id FROM image_path WHERE image_id = $1 ORDER BY prefix, distribution_id",
            {image_id}, [&](const SqlRow& row) { paths_[row.text(0)].push_back(row.number(1)); });
}

void ImageResolver::find_namespaces() {
  for (const auto& [name, owners] : modules_) {
    for (auto dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      auto parent = name.substr(0, dot);
      if (modules_.contains(parent)) continue;
      const auto [at, is_new] = namespaces_.try_emplace(std::move(parent), owners);
      if (!is_new && at->second != owners) at->second.clear();
    }
  }
}

const Owners& ImageResolver::of_module(std::string_view dotted) const {
  if (modules_.empty()) return kNobody;
  for (std::string prefix(dotted);;) {
    const auto found = modules_.find(prefix);
    if (found != modules_.end()) return found->second;
    const auto dot = prefix.rfind('.');
    if (dot == std::string::npos) break;
    prefix.resize(dot);
  }
  const auto below = namespaces_.find(std::string(dotted));
  return below == namespaces_.end() ? kNobody : below->second;
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
