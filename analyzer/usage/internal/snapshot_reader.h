#pragma once
// Reads a Snapshot, and the evidence of an Explanation, within one read transaction.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analyzer/usage/database.h"
#include "analyzer/usage/internal/months.h"
#include "analyzer/usage/internal/resolver.h"
#include "analyzer/usage/internal/user_sketch.h"
#include "core/sql/connection.h"

namespace varve::usage {

class SnapshotReader {
 public:
  // The caller holds the read transaction. With `only`, these distributions and no others are read.
  SnapshotReader(SqlConnection& sql, const SnapshotQuery& query,
                 const std::optional<std::set<std::int64_t>>& only = std::nullopt);
  Snapshot read();

 private:
  void read_images();
  void read_layers();
  void read_packages();
  void read_uses();
  void read_use_days();
  void read_first_and_last();
  void read_shared_owners();
  void read_importers();
  void read_modules();
  void read_failed();
  void read_reinstalls();
  void read_rest();
  void read_users();
  void take_users(std::int64_t kind, std::int64_t subject, std::int64_t image, const UserCount& users);
  void finish();
  DistributionUse& use_of(std::int64_t distribution);
  // " AND ..." for the image and those distributions that are asked for.
  std::string of_these() const;
  // With the window as $1 and $2 and the image, or 0 for all, as $3.
  void query(const std::string& sql, const std::function<void(const SqlRow&)>& each);

  SqlConnection& sql_;
  SnapshotQuery query_;
  CountedMonths counted_;
  std::optional<std::set<std::int64_t>> only_;
  std::string only_these_;     // " AND distribution_id IN (...)" or nothing
  std::int64_t image_id_ = 0;  // 0 = all; -1 = one that is not known
  Snapshot snapshot_;
  std::map<std::int64_t, std::string> image_digests_;
  std::map<std::int64_t, std::pair<std::string, std::string>> names_;  // distribution -> name, shown name
  std::map<std::int64_t, ImageFacts> images_;
  std::map<std::int64_t, std::int32_t> first_days_;
  std::map<std::int64_t, DistributionUse> uses_;
  std::map<std::int64_t, FailedImport> failed_;
  std::map<std::int64_t, Reinstall> reinstalls_;
};

}  // namespace varve::usage
