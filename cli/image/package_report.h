#pragma once
// How `varve packages` shows an inventory: tables for people, one document for programs.
#include <iosfwd>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "analyzer/packages/inventory.h"
#include "core/index/file_source.h"

namespace varve::cli {

struct PackageView {
  std::string sort = "name";
  bool waste = false;
  bool unowned = false;
  bool layers = false;
  bool vendored = false;
};

struct PackageCost {
  double seconds = 0;
  bool indexed = false;
  index::FetchTally fetched;
};

void print_packages(const packages::Inventory& inventory, const PackageCost& cost, const PackageView& view,
                    std::ostream& out);
void print_findings(const std::vector<packages::Finding>& findings, std::ostream& out);
// `name`: a distribution or something to import. Throws NotFound if it is neither.
void print_why(const packages::Inventory& inventory, const std::string& name, std::ostream& out);

nlohmann::json packages_json(const packages::Inventory& inventory, const PackageCost& cost);
nlohmann::json findings_json(const std::vector<packages::Finding>& findings);
nlohmann::json why_json(const packages::Inventory& inventory, const std::string& name);

}  // namespace varve::cli
