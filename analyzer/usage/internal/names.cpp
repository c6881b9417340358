#include "analyzer/usage/internal/names.h"

#include <algorithm>

#include <fmt/format.h>

namespace varve::usage {

NameTable::NameTable(SqlConnection& sql, std::string_view table, std::string_view columns)
    : sql_(sql), columns_(columns.find(',') != std::string_view::npos ? 2 : 1) {
  const auto name = columns.substr(0, columns.find(','));
  select_ = fmt::format("SELECT id, {0} FROM {1} WHERE {0}", name, table);
  insert_ = fmt::format("INSERT INTO {} ({}) VALUES", table, columns);
  returning_ = fmt::format("RETURNING id, {}", name);
}

void NameTable::intern(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const auto values_of_new = [&](std::size_t columns) {
    std::vector<SqlValue> values;
    for (const auto& name : names)
      if (!ids_.contains(name)) values.insert(values.end(), columns, name);
    return values;
  };
  const auto take = [&](const SqlRow& row) { ids_[row.text(1)] = row.number(0); };
  query_in(sql_, select_, values_of_new(1), "", take);
  run_rows(sql_, insert_, columns_, returning_, values_of_new(columns_), take);
}

std::int64_t NameTable::id_of(const std::string& name) {
  if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
  intern({name});
  return ids_.at(name);
}

std::string_view short_module(std::string_view dotted) {
  const auto first = dotted.find('.');
  if (first == std::string_view::npos) return dotted;
  return dotted.substr(0, dotted.find('.', first + 1));
}

}  // namespace varve::usage
