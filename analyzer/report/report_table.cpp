#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "analyzer/report/report.h"
#include "analyzer/report/text.h"
#include "analyzer/report/words.h"
#include "core/base/safe_text.h"
#include "core/base/units.h"

namespace varve::report {
namespace {

constexpr std::size_t kNameWidth = 23;
constexpr std::size_t kShownElsewhere = 10;  // of failed imports, reinstalls, hints

// fmt pads by bytes outside ASCII only where it knows the width; names are cut and padded by characters.
std::string padded(std::string_view text, std::size_t width) {
  auto shown = cut(text, width);
  shown.append(width - characters(shown), ' ');
  return shown;
}
std::string right(std::string_view text, std::size_t width) {
  auto shown = cut(text, width);
  shown.insert(0, width - characters(shown), ' ');
  return shown;
}

void write_line(std::ostream& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out << line << '\n';
}

// Larger first, except for names; what has no data comes last.
bool comes_before(SortBy sort, const Row& a, const Row& b) {
  if (sort != SortBy::kName && sort != SortBy::kBytes && a.no_data != b.no_data) return b.no_data;
  switch (sort) {
    case SortBy::kSessions:
      return a.use->sessions > b.use->sessions;
    case SortBy::kUsers:
      return a.use->users.at_least > b.use->users.at_least;
    case SortBy::kDirect:
      return a.use->direct > b.use->direct;
    case SortBy::kTransitive:
      return a.use->transitive_only > b.use->transitive_only;
    case SortBy::kBytes:
      return a.bytes > b.bytes;
    case SortBy::kTrend:
      return a.trend.value_or(-1) > b.trend.value_or(-1);
    case SortBy::kLastUsed:
      return a.use->last_used > b.use->last_used;
    case SortBy::kBound:
      return a.bound.value_or(-1) > b.bound.value_or(-1);
    case SortBy::kName:
      return a.use->name < b.use->name;
  }
  return false;
}

// Without separators: a range must fit.
std::string users_cell(usage::UserCount users) {
  return users.at_most <= users.at_least ? std::to_string(users.at_least)
                                         : fmt::format("{}–{}", users.at_least, users.at_most);
}

std::string trend_cell(const Row& row) {
  if (row.trend_kind == Trend::kNew || row.trend_kind == Trend::kGone) return std::string(trend_name(row.trend_kind));
  return trend_text(row.trend);
}

void write_use_row(std::ostream& out, const Row& row) {
  const auto& use = *row.use;
  const auto name = padded(visible(use.name), kNameWidth);
  const auto size = row.package == nullptr ? std::string("-") : human_bytes(row.bytes);
  if (row.no_data) {
    write_line(out, fmt::format("{} {} {}", name, padded("  no data", 49), right(size, 8)));
    return;
  }
  write_line(out,
             fmt::format("{} {} {} {} {} {} {} {} {}", name, right(number_text(use.sessions), 9),
                         right(row.share ? percent_text(*row.share) : "-", 8), right(number_text(use.direct), 8),
                         right(users_cell(use.users), 11), right(last_seen_text(use.last_used), 10), right(size, 8),
                         right(trend_cell(row), 7), right(row.bound ? percent_text(*row.bound) : "-", 8)));
}

void write_unused_row(std::ostream& out, const Row& row) {
  const auto version = row.package == nullptr ? std::string() : visible(row.package->version);
  write_line(out, fmt::format("{} {} {} {} {}  {}", padded(visible(row.use->name), kNameWidth), padded(version, 11),
                              right(human_bytes(row.bytes), 9), right(human_bytes(row.compressed_bytes), 9),
                              right(row.bound ? percent_text(*row.bound) : "-", 8), cut(holder_text(row), 31)));
}

std::vector<const Row*> chosen_rows(const Report& report, const TableOptions& options) {
  std::vector<const Row*> rows;
  if (options.unused_only) {
    for (const auto i : report.unused) rows.push_back(&report.rows[i]);
  } else {
    for (const auto& row : report.rows) rows.push_back(&row);
  }
  const bool by_bytes = options.unused_only && options.sort == SortBy::kSessions;  // all have none
  std::stable_sort(rows.begin(), rows.end(), [&](const Row* a, const Row* b) {
    return comes_before(by_bytes ? SortBy::kBytes : options.sort, *a, *b);
  });
  return rows;
}

void write_rows(const Report& report, std::ostream& out, const TableOptions& options) {
  const auto rows = chosen_rows(report, options);
  if (options.unused_only) {
    write_line(out, fmt::format("{} {} {:>9} {:>9} {:>8}  {}", padded("NEVER USED", kNameWidth), padded("VERSION", 11),
                                "SIZE", "COMPRESSED", "AT MOST", "STAYS FOR"));
  } else {
    write_line(out, fmt::format("{} {:>9} {:>8} {:>8} {:>11} {:>10} {:>8} {:>7} {:>8}", padded("NAME", kNameWidth),
                                "SESSIONS", "SHARE", "DIRECT", "USERS", "LAST USED", "SIZE", "TREND", "AT MOST"));
  }
  const auto shown = options.limit == 0 ? rows.size() : std::min(options.limit, rows.size());
  for (std::size_t i = 0; i < shown; ++i)
    options.unused_only ? write_unused_row(out, *rows[i]) : write_use_row(out, *rows[i]);
  if (shown < rows.size()) out << fmt::format("… {} more: --all\n", number_text(rows.size() - shown));
  if (rows.empty())
    out << (options.unused_only ? "nothing: every distribution that could be seen was used\n" : "nothing known yet\n");
}

template <typename Items, typename Write>
void write_section(std::ostream& out, std::string_view heading, const Items& items, bool all, Write&& write) {
  if (items.empty()) return;
  out << '\n' << heading << '\n';
  const auto shown = all ? items.size() : std::min(items.size(), kShownElsewhere);
  for (std::size_t i = 0; i < shown; ++i) write_line(out, write(items[i]));
  if (shown < items.size()) out << fmt::format("  … {} more: --all\n", number_text(items.size() - shown));
}

void write_gpu(const Report& report, std::ostream& out) {
  const auto lines = gpu_sentences(report);
  if (lines.empty()) return;
  out << "\nGPU\n";
  for (const auto& line : lines) write_wrapped(out, "  ", line);
}

void write_findings(const Report& report, std::ostream& out, bool all) {
  const auto& snapshot = report.snapshot;
  write_section(out, "Imports that failed: what to add", snapshot.failed, all, [](const usage::FailedImport& failed) {
    return fmt::format("  {} {} {}", padded(visible(failed.module), 34),
                       padded(count_text(failed.sessions, "session", "sessions"), 18),
                       failed.distribution.empty() ? "" : "distribution " + cut(visible(failed.distribution), 30));
  });
  write_section(out, "Installed by sessions over the image: which pins to fix", snapshot.reinstalls, all,
                [](const usage::Reinstall& reinstall) {
                  return fmt::format("  {} {} {}", padded(visible(reinstall.distribution), 34),
                                     padded(count_text(reinstall.sessions, "session", "sessions"), 18),
                                     cut(reinstall_text(reinstall), 42));
                });
  write_gpu(report, out);
  write_section(out, "Hints in notebooks (not verdicts)", snapshot.hints, all, [](const usage::NotebookHint& hint) {
    return fmt::format("  {} {} {}", padded(visible(hint.notebook), 36), padded(place_text(hint.cell, hint.line), 18),
                       cut(visible(hint.text), 40));
  });
}

}  // namespace

void write_summary(const Report& report, std::ostream& out) {
  for (const auto& line : summary_sentences(report)) write_wrapped(out, "", line);
}

void write_table(const Report& report, std::ostream& out, const TableOptions& options) {
  write_summary(report, out);
  out << '\n';
  write_rows(report, out, options);
  if (!options.unused_only) write_findings(report, out, options.limit == 0);
  const auto notes = caution_sentences(report);
  if (!notes.empty()) out << '\n';
  for (const auto& line : notes) write_wrapped(out, "", line);
}

}  // namespace varve::report
