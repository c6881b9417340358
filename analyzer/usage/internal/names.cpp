#include "analyzer/usage/internal/names.h"

#include <algorithm>

#include <fmt/format.h>

namespace varve::usage {
namespace {

std::vector<SqlValue> values_of(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

}  // namespace

void NameTable::intern(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::erase_if(names, [&](const std::string& name) { return ids_.contains(name); });
  if (names.empty()) return;
  const auto take = [&](const SqlRow& row) { remember(row.number(0), row.text(1)); };
  query_in(sql_, fmt::format("SELECT id, {0} FROM {1} WHERE {0}", column_, table_), values_of(names), "", take);
  std::erase_if(names, [&](const std::string& name) { return ids_.contains(name); });
  // A distribution is also shown by a name; until an inventory tells better it is the same.
  if (table_ == "distribution") {
    std::vector<SqlValue> values;
    for (const auto& name : names) values.insert(values.end(), {SqlValue(name), SqlValue(name)});
    run_rows(sql_, "INSERT INTO distribution (name, display_name) VALUES", 2, "RETURNING id, name", values, take);
  } else {
    run_rows(sql_, fmt::format("INSERT INTO {} ({}) VALUES", table_, column_), 1,
             fmt::format("RETURNING id, {}", column_), values_of(names), take);
  }
}

std::int64_t NameTable::id_of(const std::string& name) {
  const auto found = ids_.find(name);
  if (found != ids_.end()) return found->second;
  intern({name});
  return ids_.at(name);
}

const std::string& NameTable::name_of(std::int64_t id) {
  static const std::string kNone;
  auto found = names_.find(id);
  if (found != names_.end()) return found->second;
  load_names({id});
  found = names_.find(id);
  return found == names_.end() ? kNone : found->second;
}

void NameTable::load_names(const std::vector<std::int64_t>& ids) {
  std::vector<SqlValue> missing;
  for (const auto id : ids)
    if (!names_.contains(id)) missing.emplace_back(id);
  query_in(sql_, fmt::format("SELECT id, {} FROM {} WHERE id", column_, table_), missing, "",
           [&](const SqlRow& row) { remember(row.number(0), row.text(1)); });
}

void NameTable::forget() {
  ids_.clear();
  names_.clear();
}

void NameTable::remember(std::int64_t id, std::string name) {
  names_[id] = name;
  ids_[std::move(name)] = id;
}

std::string_view short_module(std::string_view dotted) {
  const auto first = dotted.find('.');
  if (first == std::string_view::npos) return dotted;
  return dotted.substr(0, dotted.find('.', first + 1));
}

}  // namespace varve::usage
