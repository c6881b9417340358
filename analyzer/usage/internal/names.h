#pragma once
// Names that the database keeps once, under a number: modules, distributions, paths that wait for an inventory, GPU
// models.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/sql/connection.h"

namespace varve::usage {

// One table (id, name). Remembers what it saw until forget(): numbers may become invalid when another connection
// removes them.
class NameTable {
 public:
  NameTable(SqlConnection& sql, std::string table, std::string column)
      : sql_(sql), table_(std::move(table)), column_(std::move(column)) {}

  // Makes numbers for all of these that have none yet. Within a write transaction.
  void intern(std::vector<std::string> names);
  std::int64_t id_of(const std::string& name);  // interns it if need be
  const std::string& name_of(std::int64_t id);  // "" if there is no such number; valid until forget()
  // Reads the names of many numbers at once.
  void load_names(const std::vector<std::int64_t>& ids);
  void forget();
  std::size_t remembered() const { return names_.size(); }

 private:
  void remember(std::int64_t id, std::string name);

  SqlConnection& sql_;
  std::string table_, column_;
  std::unordered_map<std::string, std::int64_t> ids_;
  std::unordered_map<std::int64_t, std::string> names_;
};

// The first two parts of a dotted name: as much as the daily counts keep of a module.
std::string_view short_module(std::string_view dotted);

}  // namespace varve::usage
