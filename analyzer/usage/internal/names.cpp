#include "analyzer/usage/internal/names.h"

#include <fmt/format.h>

namespace varve::usage {

NameTable::NameTable(SqlConnection& sql, std::string_view table, std::string_view columns) : sql_(sql) {
  const auto comma = columns.find(',');
  select_ = fmt::format("SELECT id FROM {} WHERE {} = $1", table, columns.substr(0, comma));
  insert_ = fmt::format("INSERT INTO {} ({}) VALUES ($1{}) RETURNING id", table, columns,
                        comma == std::string_view::npos ? "" : ", $1");
}

std::int64_t NameTable::id_of(const std::string& name) {
  auto& id = ids_[name];
  const auto take = [&](const SqlRow& row) { id = row.number(0); };
  if (id == 0) sql_.query(select_, {name}, take);
  if (id == 0) sql_.query(insert_, {name}, take);
  return id;
}

std::string_view short_module(std::string_view dotted) {
  const auto first = dotted.find('.');
  if (first == std::string_view::npos) return dotted;
  return dotted.substr(0, dotted.find('.', first + 1));
}

}  // namespace varve::usage
