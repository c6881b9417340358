#include "analyzer/report/report.h"

#include <algorithm>
#include <set>

#include "analyzer/report/rows.h"
#include "core/base/text/safe_text.h"

namespace varve::report {
namespace {

// Removes what may be somebody's own package: names that no image has, seen in fewer than `min_sessions` sessions.
// Returns how many.
std::uint64_t hide_private_names(usage::Snapshot& snapshot, std::uint64_t min_sessions) {
  std::set<std::string> hidden;
  std::set<std::string, std::less<>> known;
  for (const auto& use : snapshot.distributions) {
    if (!use.packages.empty()) known.insert(use.name);
  }
  std::erase_if(snapshot.distributions, [&](const usage::DistributionUse& use) {
    // Notebooks are scanned by the reader of the report; what they name is no secret of a session.
    const bool hide = use.packages.empty() && use.notebooks == 0 && use.sessions < min_sessions;
    if (hide) hidden.insert(use.name);
    return hide;
  });
  std::erase_if(snapshot.reinstalls, [&](const usage::Reinstall& reinstall) {
    const bool hide = !known.contains(reinstall.distribution) && reinstall.sessions < min_sessions;
    if (hide) hidden.insert(reinstall.distribution);
    return hide;
  });
  std::erase_if(snapshot.unresolved, [&](const auto& module) {
    if (module.second < min_sessions) hidden.insert(module.first);
    return module.second < min_sessions;
  });
  for (auto& use : snapshot.distributions) {
    std::erase_if(use.importers, [&](const auto& importer) {
      const bool hide = !known.contains(importer.first) && importer.second < min_sessions;
      if (hide) hidden.insert(importer.first);
      return hide;
    });
  }
  return hidden.size();
}

void sum_images(Report& report) {
  for (const auto& image : report.snapshot.images) {
    report.heard += image.heard;
    report.surplus += image.surplus;
    report.launched += std::max(image.launched, image.heard);  // a launch nobody counted was still a session
    report.gpu.sessions += image.gpu_sessions;
    report.gpu.used_sessions += image.gpu_used_sessions;
    report.gpu.unused_seconds += image.gpu_unused_seconds;
    report.gpu.idle_seconds += image.gpu_idle_seconds;
    report.gpu.incapable_sessions += image.gpu_incapable_sessions;
    report.gpu.incapable_seconds += image.gpu_incapable_seconds;
    // One user may work on several images: of all together only the best single figure is certain.
    report.users.at_least = std::max(report.users.at_least, image.users.at_least);
    report.users.at_most += image.users.at_most;
  }
}

void sum_unused(Report& report) {
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const auto& row = report.rows[i];
    if (row.in_current == 0) continue;
    report.packages += row.in_current;
    report.known += row.no_data ? 0 : row.in_current;
    if (!row.unused) continue;
    report.unused.push_back(i);
    const auto add = [&row](UnusedSum& sum) {
      sum.distributions += row.in_current;
      sum.bytes += row.bytes;
      sum.compressed_bytes += row.compressed_bytes;
    };
    add(report.unused_all);
    if (row.could_go) add(report.free);
  }
  std::stable_sort(report.unused.begin(), report.unused.end(),
                   [&](std::size_t a, std::size_t b) { return report.rows[a].bytes > report.rows[b].bytes; });
}

}  // namespace

std::string_view trend_name(Trend trend) {
  switch (trend) {
    case Trend::kUnknown:
      return "";
    case Trend::kNone:
      return "";
    case Trend::kNew:
      return "new";
    case Trend::kRising:
      return "rising";
    case Trend::kSteady:
      return "steady";
    case Trend::kFalling:
      return "falling";
    case Trend::kGone:
      return "gone";
  }
  return "";
}

bool has_row(const TableOptions& options, const Row& row) {
  if (options.could_go_only && !row.could_go) return false;
  if (options.unused_only && (row.in_current == 0 || !row.unused)) return false;
  if (options.sources.empty()) return true;
  const auto source = row.package == nullptr || row.package->source == "egg" ? "pip" : row.package->source;
  return options.sources.contains(source);
}

std::string image_name(const usage::ImageFacts& image) {
  constexpr std::size_t kShown = 60;
  if (image.digest == Digest() && image.label.empty()) return "an image nobody named";
  return image.label.empty() ? "sha256:" + image.digest.hex().substr(0, 12) : visible(image.label, kShown);
}

Report make_report(usage::Snapshot snapshot, const ReportOptions& options) {
  Report report;
  report.snapshot = std::move(snapshot);
  report.options = options;
  report.made_on = options.today;
  report.hidden_names = hide_private_names(report.snapshot, options.min_sessions);
  const Scene scene(report.snapshot);
  report.current = scene.current();
  report.rows.reserve(report.snapshot.distributions.size());
  for (const auto& use : report.snapshot.distributions) report.rows.push_back(make_row(scene, use));
  std::stable_sort(report.rows.begin(), report.rows.end(), [](const Row& a, const Row& b) {
    return a.sessions != b.sessions ? a.sessions > b.sessions : a.use->name < b.use->name;
  });
  find_holders(scene, report.rows);
  sum_images(report);
  sum_unused(report);
  return report;
}

Report make_report(usage::Snapshot snapshot, std::int32_t today) {
  return make_report(std::move(snapshot), {.today = today});
}

}  // namespace varve::report
