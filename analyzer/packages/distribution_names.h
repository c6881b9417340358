#pragma once
// From names in code to distributions: by an image's own packages where they are known, else by what is generally
// known.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/findings.h"
#include "analyzer/packages/inventory.h"

namespace varve::packages {

// Safe to use from several threads once it is made.
class DistributionNames {
 public:
  // What is generally known; names of which nothing is known stand for themselves.
  DistributionNames() = default;
  // What `varve packages --json` wrote. Throws CorruptData if the file is something else.
  static DistributionNames of_packages_file(const std::filesystem::path& path);

  static DistributionNames of_inventory(const Inventory& inventory);

  // The distributions that an import or command is of, sorted; empty for local names, the standard library, and, where
  // an image's packages are known, for what the image has not.
  std::vector<std::string> of(const notebooks::Import& import) const;
  // A module of Python's own that no distribution brings, too.
  bool is_stdlib(const notebooks::Import& import) const;
  // Some distribution, or Python itself, gives a top-level module of this name.
  bool is_distribution(std::string_view name) const;
  // The packages of an image are known, so what of() does not find is missing there.
  bool of_image() const { return of_image_; }

 private:
  void add(const std::string& module, const std::string& distribution);
  void add_program(const std::string& program, const std::string& distribution);

  bool of_image_ = false;
  ModuleIndex<std::string> modules_;
  std::map<std::string, std::vector<std::string>, std::less<>> programs_;  // of commands
  std::set<std::string, std::less<>> distributions_;
};

}  // namespace varve::packages
