#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "analyzer/report/report.h"
#include "analyzer/report/text.h"
#include "analyzer/report/words.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"

namespace varve::report {
namespace {

constexpr std::size_t kNameWidth = 23;
constexpr std::size_t kUseNameWidth = 18;
constexpr std::size_t kSystemShown = 10;     // of the operating system, unless asked for
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
      return a.sessions > b.sessions;
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
    case SortBy::kCouldGo:
      return a.could_go != b.could_go ? a.could_go : a.bytes > b.bytes;
    case SortBy::kName:
      return a.use->name < b.use->name;
  }
  return false;
}

// Without separators: a range must fit, or its upper end stands for it.
std::string users_cell(usage::UserCount users) {
  if (users.at_most <= users.at_least) return short_number(users.at_least);
  const auto range = fmt::format("{}–{}", users.at_least, users.at_most);
  return characters(range) <= 9 ? range : "≤ " + short_number(users.at_most);
}

std::string trend_cell(const Row& row) {
  if (row.trend_kind == Trend::kNew || row.trend_kind == Trend::kGone) return std::string(trend_name(row.trend_kind));
  return trend_text(row.trend);
}

std::string sessions_cell(std::uint64_t sessions) {
  return sessions < 1'000'000 ? number_text(sessions) : short_number(sessions);
}

// The page has both; here the width is spent.
std::string last_cell(const Row& row, SortBy sort) {
  return sort == SortBy::kTrend ? trend_cell(row) : last_seen_text(row.use->last_used);
}

void write_use_row(std::ostream& out, const Row& row, SortBy sort) {
  const auto& use = *row.use;
  const auto name = padded(visible(use.name), kUseNameWidth);
  const auto size = row.package == nullptr ? std::string("-") : human_bytes(row.bytes);
  if (row.no_data) {
    write_line(out, fmt::format("{} {} {}", name, padded("  no data", 72), right(size, 8)));
    return;
  }
  write_line(out, fmt::format("{} {} {} {} {} {} {} {} {} {} {}", name, right(sessions_cell(row.sessions), 8),
                              right(short_number(use.direct), 6), right(short_number(use.transitive_only), 5),
                              right(short_number(named_only(use)), 5), right(short_number(use.files_only), 5),
                              right(row.share ? percent_text(*row.share) : "-", 8),
                              right(row.bound ? percent_text(*row.bound) : "-", 8), right(users_cell(use.users), 9),
                              right(last_cell(row, sort), 10), right(size, 8)));
}

void write_unused_row(std::ostream& out, const Row& row) {
  const auto version = row.package == nullptr ? std::string() : visible(row.package->version);
  write_line(out, fmt::format("{} {} {} {} {}  {}", padded(visible(row.use->name), kNameWidth), padded(version, 11),
                              right(human_bytes(row.bytes), 9), right(human_bytes(row.compressed_bytes), 10),
                              right(row.bound ? percent_text(*row.bound) : "-", 8), cut(holder_text(row), 30)));
}

bool lists_unused(const TableOptions& options) { return options.unused_only || options.could_go_only; }

std::vector<const Row*> chosen_rows(const Report& report, const TableOptions& options) {
  std::vector<const Row*> rows;
  if (lists_unused(options)) {
    for (const auto i : report.unused) rows.push_back(&report.rows[i]);
  } else {
    for (const auto& row : report.rows) rows.push_back(&row);
  }
  std::erase_if(rows, [&](const Row* row) { return !has_row(options, *row); });
  const bool by_bytes = lists_unused(options) && options.sort == SortBy::kSessions;  // all have none
  std::stable_sort(rows.begin(), rows.end(), [&](const Row* a, const Row* b) {
    return comes_before(by_bytes ? SortBy::kBytes : options.sort, *a, *b);
  });
  return rows;
}

void write_heading(std::ostream& out, const TableOptions& options, std::string_view what) {
  if (lists_unused(options)) {
    write_line(out, fmt::format("{} {} {:>9} {:>10} {:>8}  {}", padded(what, kNameWidth), padded("VERSION", 11), "SIZE",
                                "COMPRESSED", "AT MOST", "STAYS FOR"));
  } else {
    write_line(out, fmt::format("{} {:>8} {:>6} {:>5} {:>5} {:>5} {:>8} {:>8} {:>9} {:>10} {:>8}",
                                padded(what, kUseNameWidth), "SESSIONS", "DIRECT", "VIA", "NAMED", "FILES", "SHARE",
                                "AT MOST", "USERS", options.sort == SortBy::kTrend ? "TREND" : "LAST USED", "SIZE"));
  }
}

void write_list(std::ostream& out, const TableOptions& options, std::string_view what,
                const std::vector<const Row*>& rows, std::size_t limit) {
  write_heading(out, options, what);
  const auto shown = options.limit == 0 ? rows.size() : std::min(limit, rows.size());
  for (std::size_t i = 0; i < shown; ++i)
    lists_unused(options) ? write_unused_row(out, *rows[i]) : write_use_row(out, *rows[i], options.sort);
  if (shown < rows.size()) out << fmt::format("… {} more: --all\n", number_text(rows.size() - shown));
}

// What the columns are: a count without its meaning has misled readers.
void write_legend(std::ostream& out, const TableOptions& options) {
  out << '\n';
  if (lists_unused(options))
    return write_wrapped(out, "",
                         "AT MOST: the share of sessions that may use it all the same, at 95 % confidence. STAYS FOR: "
                         "what keeps it; nothing means that it could go.");
  write_wrapped(out, "",
                "SESSIONS = DIRECT (the user's code imports it) + VIA (only other libraries do) + NAMED (a cell names "
                "what was loaded already) + FILES (its files were opened or run, nothing of it was loaded). AT MOST: "
                "the share of sessions that may use it, at 95 % confidence.");
}

void write_rows(const Report& report, std::ostream& out, const TableOptions& options) {
  auto rows = chosen_rows(report, options);
  if (rows.empty()) {
    out << (options.could_go_only ? "nothing could go: each distribution is used, or something that stays needs it\n"
            : options.unused_only ? "nothing: every distribution that could be seen was used\n"
            : options.sources.empty() ? "nothing known yet\n"
                                      : "nothing of these sources\n");
    return;
  }
  std::vector<const Row*> system;
  if (options.sources.empty()) {
    const auto first = std::stable_partition(rows.begin(), rows.end(), [](const Row* row) { return !row->system; });
    system.assign(first, rows.end());
    rows.erase(first, rows.end());
  }
  if (!rows.empty()) write_list(out, options, lists_unused(options) ? "NEVER USED" : "NAME", rows, options.limit);
  if (!system.empty()) {
    if (!rows.empty()) out << '\n';
    write_list(out, options, "OPERATING SYSTEM", system, rows.empty() ? options.limit : kSystemShown);
  }
  write_legend(out, options);
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
  if (!lists_unused(options)) write_findings(report, out, options.limit == 0);
  const auto notes = caution_sentences(report);
  if (!notes.empty()) out << '\n';
  for (const auto& line : notes) write_wrapped(out, "", line);
}

}  // namespace varve::report
