#include <fmt/format.h>

#include <algorithm>

#include "analyzer/report/rows.h"
#include "analyzer/report/text.h"
#include "core/base/text/safe_text.h"

namespace varve::report {
namespace {

// "pandas", "pandas and seaborn", "pandas, seaborn and 3 more": those through which most sessions came.
std::string main_importers(const usage::DistributionUse& use) {
  std::vector<std::pair<std::string, std::uint64_t>> importers(use.importers.begin(), use.importers.end());
  std::stable_sort(importers.begin(), importers.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (importers.empty()) return "other libraries";
  const auto first = visible(importers[0].first, 60);
  if (importers.size() == 1) return first;
  const auto second = visible(importers[1].first, 60);
  return importers.size() == 2 ? fmt::format("{} and {}", first, second)
                               : fmt::format("{}, {} and {} more", first, second, importers.size() - 2);
}

std::string notebooks_say(const usage::DistributionUse& use) {
  auto text = use.notebooks == 1 ? std::string("1 notebook imports it")
                                 : fmt::format("{} notebooks import it", number_text(use.notebooks));
  if (use.notebooks_optional >= use.notebooks) {
    text += use.notebooks == 1 ? " (only inside try or if)" : " (all only inside try or if)";
  } else if (use.notebooks_optional > 0) {
    text += fmt::format(" ({} of them only inside try or if)", number_text(use.notebooks_optional));
  }
  return text;
}

void static_against_run_time(const Scene& scene, const usage::DistributionUse& use, const Row& row,
                             std::vector<std::string>& found) {
  if (use.notebooks > 0 && use.sessions == 0 && row.unused) {
    found.push_back(fmt::format("{}, no session did", notebooks_say(use)));
  } else if (use.notebooks > 0 && use.sessions > 0 && use.direct == 0 && use.static_sessions == 0) {
    found.push_back(fmt::format("{}, sessions loaded it only through {}", notebooks_say(use), main_importers(use)));
  } else if (use.notebooks == 0 && use.sessions > 0 && scene.snapshot().notebooks_scanned > 0) {
    // So few notebooks may name what many sessions import by chance alone: said only where three would be expected.
    const auto notebooks = double(std::max(scene.snapshot().notebooks_distinct, std::uint64_t(1)));
    if (use.direct > 0 && row.exposed_sessions > 0 && notebooks * double(use.direct) / double(row.exposed_sessions) < 3)
      return;
    const auto sessions = count_text(use.sessions, "session", "sessions");
    found.push_back(use.direct > 0 ? fmt::format("used by {}, named in no scanned notebook: {} imported it directly",
                                                 sessions, number_text(use.direct))
                                   : fmt::format("used by {}, named in no scanned notebook: only through {}", sessions,
                                                 main_importers(use)));
  }
  if (use.static_sessions > 0 && use.sessions == 0)
    found.push_back(
        fmt::format("cells of {} name it, none loaded it", count_text(use.static_sessions, "session", "sessions")));
}

}  // namespace

std::vector<std::string> find_disagreements(const Scene& scene, const usage::DistributionUse& use, const Row& row) {
  std::vector<std::string> found;
  static_against_run_time(scene, use, row, found);
  if (use.file_sessions > 0 && use.sessions == 0)
    found.push_back(fmt::format("its files were opened in {}, no import was seen: data, a program or another language",
                                count_text(use.file_sessions, "session", "sessions")));
  if (use.exec_sessions > 0 && use.sessions == 0)
    found.push_back(fmt::format("its programs ran in {}, no import was seen",
                                count_text(use.exec_sessions, "session", "sessions")));
  if (!use.packages.empty() && use.session_copy > use.image_copy)
    found.push_back(fmt::format("{} of {} loaded a copy of their own, not the image's", number_text(use.session_copy),
                                count_text(std::max(use.sessions, use.session_copy), "session", "sessions")));
  return found;
}

}  // namespace varve::report
