#include "core/base/text/nearest.h"

#include <algorithm>

#include "core/base/text/safe_text.h"

namespace varve {
namespace {

constexpr std::size_t kComparedBytes = 64;  // of names, which may be a stranger's

}  // namespace

std::size_t edit_distance(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  for (std::size_t j = 0; j <= other.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= one.size(); ++i) {
    auto diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= other.size(); ++j) {
      const auto above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (one[i - 1] == other[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> candidates, std::size_t most) {
  if (name.empty()) return {};
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (auto& one : candidates) {
    const bool related = !one.empty() && (one.find(name) != one.npos || name.find(one) != name.npos);
    const auto steps =
        related ? 0 : edit_distance(name.substr(0, kComparedBytes), std::string_view(one).substr(0, kComparedBytes));
    ranked.emplace_back(steps, std::move(one));
  }
  std::ranges::sort(ranked);
  std::vector<std::string> names;
  for (auto& [steps, near] : ranked) {
    if (names.size() == most || steps > std::max<std::size_t>(2, name.size() / 2)) break;
    if (names.empty() || names.back() != near) names.push_back(std::move(near));
  }
  return names;
}

std::string did_you_mean(std::string_view name, std::vector<std::string> candidates, std::size_t most) {
  std::string text;
  for (const auto& near : nearest_names(name, std::move(candidates), most))
    text += (text.empty() ? "; did you mean " : ", ") + visible(near, 100);
  return text;
}

}  // namespace varve
