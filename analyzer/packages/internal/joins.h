#pragma once
// From records to distributions: what conda and dpkg brought is one with the Python metadata inside it; vendored and
// stale records are told apart.
#include <optional>
#include <string>
#include <vector>

#include "analyzer/packages/internal/record.h"

namespace varve::packages::internal {

// A distribution on its way into the inventory.
struct Installed {
  Distribution distribution;
  std::size_t record = 0;              // of its Python metadata, else of its package
  std::optional<std::size_t> package;  // record of the conda or Debian package that it is one with
  std::vector<FileId> claims;          // from lists; ascending
  std::vector<FileId> weak_claims;     // by names only: count where nobody else claims; ascending
};

// A record that another one of its name has taken the place of.
struct StaleRecord {
  std::size_t record = 0;
  std::size_t truth = 0;  // the record that counts
};

struct Joined {
  std::vector<Installed> installed;  // by normalised name, then record path
  std::vector<StaleRecord> stale;
};

Joined join_records(Records& records, const FileTable& table, const std::vector<Interpreter>& interpreters);

}  // namespace varve::packages::internal
