#include "analyzer/usage/internal/failed_names.h"

#include <algorithm>

#include "analyzer/python/name.h"

namespace varve::usage {
namespace {

constexpr std::size_t kMaxRemembered = 200'000;

}  // namespace

bool FailedNames::is_public(const std::string& module) {
  bool found = false;
  sql_.query(
      "SELECT 1 WHERE EXISTS (SELECT 1 FROM image_module WHERE name = $1) "
      "OR EXISTS (SELECT 1 FROM package JOIN distribution ON distribution.id = package.distribution_id "
      "WHERE distribution.name = $2)",
      {module, python::normalize_name(module)}, [&](const SqlRow&) { found = true; });
  return found;
}

std::int64_t FailedNames::id_of(const std::string& module) {
  const auto known = ids_.find(module);
  if (known != ids_.end()) return known->second;
  const auto hash = to_bytes(hash_.of(module).raw());
  std::int64_t id = 0;
  std::string name;
  sql_.query(
      "INSERT INTO failed_name (hash, name, sessions) VALUES ($1, '', 0) ON CONFLICT (hash) DO UPDATE "
      "SET hash = excluded.hash RETURNING id, name",
      {hash}, [&](const SqlRow& row) {
        id = row.number(0);
        name = row.text(1);
      });
  if (name.empty() && is_public(module)) sql_.run("UPDATE failed_name SET name = $2 WHERE id = $1", {id, module});
  if (ids_.size() >= kMaxRemembered) ids_.clear();
  ids_[module] = id;
  return id;
}

void FailedNames::add_session(std::int64_t id, const std::string& module, std::uint32_t enough_sessions) {
  sql_.run(
      "UPDATE failed_name SET sessions = sessions + 1, "
      "name = CASE WHEN name = '' AND sessions + 1 >= $3 THEN $2 ELSE name END WHERE id = $1",
      {id, module, std::int64_t(enough_sessions)});
}

void FailedNames::reveal(const std::vector<std::string>& names) {
  std::set<Bytes> hidden;
  sql_.query("SELECT hash FROM failed_name WHERE name = ''", {},
             [&](const SqlRow& row) { hidden.insert(row.blob(0)); });
  if (hidden.empty()) return;
  for (const auto& name : names) {
    auto hash = to_bytes(hash_.of(name).raw());
    if (hidden.contains(hash)) sql_.run("UPDATE failed_name SET name = $2 WHERE hash = $1", {std::move(hash), name});
  }
}

void FailedNames::forget() { ids_.clear(); }

}  // namespace varve::usage
