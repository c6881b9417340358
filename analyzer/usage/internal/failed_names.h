#pragma once
// Names of imports that failed. Such a name may be somebody's own: the database holds a keyed hash of it until it is
// known to be public (docs/formats/usage-spool.md, "What is never written").
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "analyzer/usage/internal/keyed_hash.h"
#include "core/sql/connection.h"

namespace varve::usage {

class FailedNames {
 public:
  // Both must outlive it.
  FailedNames(SqlConnection& sql, KeyedHash& hash) : sql_(sql), hash_(hash) {}

  // The number of a name; a name that one of the known images has is stored as itself. Within a write transaction.
  std::int64_t id_of(const std::string& module);
  // One more session failed on it; from `enough_sessions` on the name itself is stored.
  void add_session(std::int64_t id, const std::string& module, std::uint32_t enough_sessions);
  // Stores those of `names` as themselves on which sessions failed before.
  void reveal(const std::vector<std::string>& names);
  void forget();

 private:
  bool is_public(const std::string& module);

  SqlConnection& sql_;
  KeyedHash& hash_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

}  // namespace varve::usage
