#pragma once
// What people want to know of all scanned notebooks and scripts together.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/notebooks/scan.h"
#include "analyzer/packages/distribution_names.h"

namespace varve::usage {

// Files with the same code count once, as ScannedFile::duplicate_of tells them. `names` must outlive it.
class ScanSummary {
 public:
  // A top-level module, and the distributions that it is of: "PIL" and "pillow"; "a, b" where several have it, "" where
  // none is known.
  struct Use {
    std::string module;
    std::string distributions;
    std::uint64_t notebooks = 0;
    std::uint64_t optional = 0;  // of these: only inside try or if
  };
  struct Install {
    std::string what;  // "pip numpy"; the tool and its argument where no package is known
    std::uint64_t notebooks = 0;
  };

  explicit ScanSummary(const packages::DistributionNames& names) : names_(names) {}

  void add(const notebooks::ScannedFile& file);

  std::uint64_t files() const { return files_; }
  std::uint64_t duplicates() const { return duplicates_; }  // of these: with the code of another one
  std::uint64_t distinct() const { return files_ - duplicates_; }
  const std::map<std::string, std::uint64_t>& languages() const { return languages_; }  // distinct files; "unknown" too
  // Most notebooks first, equals by name. What is local, Python's own, or not to be known is left out of uses(), what
  // is removed out of installs().
  std::vector<Use> uses() const;
  std::vector<Install> installs() const;

 private:
  struct Count {
    std::uint64_t notebooks = 0, optional = 0;
  };
  using Row = std::pair<std::string, std::string>;

  Row row_of(const notebooks::Import& import) const;
  void count_imports(const notebooks::ScannedFile& file);
  void count_installs(const notebooks::ScannedFile& file);

  const packages::DistributionNames& names_;
  std::uint64_t files_ = 0, duplicates_ = 0;
  std::map<std::string, std::uint64_t> languages_;
  std::map<Row, Count> uses_;
  std::map<std::string, std::uint64_t> installs_;
};

}  // namespace varve::usage
