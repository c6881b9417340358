#pragma once
// How `varve image diff` shows a comparison: one screen for people, one document for programs.
#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "analyzer/compare/compare.h"

namespace varve::cli {

struct DiffView {
  std::size_t packages = 20;  // rows for people; --json has all
  std::size_t files = 0;      // listed at most
};

struct DiffInput {
  std::string before, after;  // as the images were named
  const oci::Image& image_before;
  const oci::Image& image_after;
  const compare::Comparison& comparison;
  std::string notebook;  // its path; "" = none
  std::optional<compare::NotebookComparison> for_notebook;
};

void print_diff(const DiffInput& diff, const DiffView& view, std::ostream& out);
nlohmann::json diff_json(const DiffInput& diff, const DiffView& view);

}  // namespace varve::cli
