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
  // A new name is stored in all of `columns`, of which the first tells it from others.
  NameTable(SqlConnection& sql, std::string_view table, std::string_view columns);

  // Makes numbers for those of these that have none yet, all at once: a server may be far away. Within a write
  // transaction.
  void intern(std::vector<std::string> names);
  std::int64_t id_of(const std::string& name);  // interns it if need be
  void forget() { ids_.clear(); }
  std::size_t remembered() const { return ids_.size(); }

 private:
  SqlConnection& sql_;
  std::string select_, insert_, returning_;
  std::size_t columns_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

// The first two parts of a dotted name: as much as the daily counts keep of a module.
std::string_view short_module(std::string_view dotted);

}  // namespace varve::usage
