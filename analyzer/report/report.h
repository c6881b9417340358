#pragma once
// The usage report: built from a snapshot, then written as text, JSON, CSV or one HTML page. What its numbers mean:
// docs/guide/usage.md. Nothing here reads a file or a clock; all functions may be called from any thread.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "analyzer/usage/snapshot.h"

namespace varve::report {

// How often at most, at 95 % confidence, given that `uses` of `sessions` were seen: rule of three for none, the
// one-sided Clopper-Pearson bound otherwise (whose value for none the rule of three approximates). Absent when sessions
// is 0: no data is not zero.
std::optional<double> upper_bound(std::uint64_t uses, std::uint64_t sessions);

struct ReportOptions {
  std::int32_t today = 0;  // day the report is made on
  std::uint64_t min_sessions =
      5;  // k: a name that no image has may be somebody's own package; below so many sessions it is counted, not named
};

enum class Trend : std::uint8_t { kUnknown, kNone, kNew, kRising, kSteady, kFalling, kGone };
std::string_view trend_name(Trend trend);  // "new" "rising" …; "" where there is nothing to say (kUnknown, kNone)

struct Row {
  const usage::DistributionUse* use = nullptr;   // in the snapshot
  const usage::PackageFacts* package = nullptr;  // in the newest image that has it; nullptr: no known image has it
  std::uint64_t bytes = 0;                       // in the newest image that has it
  std::uint64_t compressed_bytes = 0;
  std::uint64_t sessions = 0;          // usage::used_in(): any way of use
  std::uint64_t exposed_sessions = 0;  // heard sessions on images that have it: what its count is out of
  std::optional<double> share;         // sessions / exposed_sessions
  std::optional<double>
      bound;  // upper, 95 %; absent where share is: no data, or no session heard on an image that has it
  std::optional<double>
      trend;  // use in the second half of the window against the first, per heard session where those are known by day,
              // else per day: 1 = unchanged; absent if either half has no data or the first no use
  Trend trend_kind = Trend::kUnknown;  // kRising and kFalling only where chance alone is an unlikely reason (5 %)
  std::optional<std::uint64_t> last_30, last_90,
      last_365;                  // sessions up to the window's end; absent for more days than were asked for
  std::uint64_t in_current = 0;  // packages::count_packages() of the current image: as how many it counts there
  bool no_data = false;          // nobody could have been seen using it: then zero says nothing
  std::string no_data_reason;    // in words; "" unless no_data
  bool unused = false;           // seen in no session in any way, although it would have been
  bool could_go = false;         // unused, and neither needed by what stays nor named by a notebook, nor CUDA or dpkg
  bool cuda = false;             // a CUDA library: stays whatever is counted
  bool system = false;  // the distribution's own package (dpkg): use of it is only partly seen, so it is never said
                        // that it could go
  std::vector<std::string> needed_by;  // of what stays and needs it on the current image, directly: at most 3 names
  std::uint64_t needed_by_count = 0;
  std::vector<std::string> disagreements;  // static against run time, image against session, in words
};

// Sums over what could go from the current image.
struct UnusedSum {
  std::uint64_t distributions = 0, bytes = 0, compressed_bytes = 0;
};

struct GpuSummary {
  std::uint64_t sessions = 0;  // heard, with an accelerator
  std::uint64_t used_sessions = 0;
  std::uint64_t unused_seconds = 0, idle_seconds = 0;
  std::uint64_t incapable_sessions = 0, incapable_seconds = 0;
};

// Rows point into the snapshot, so a report is moved, never copied.
struct Report {
  Report() = default;
  Report(Report&&) = default;
  Report& operator=(Report&&) = default;
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  usage::Snapshot snapshot;  // without the names that ReportOptions::min_sessions keeps back
  ReportOptions options;
  std::vector<Row> rows;     // by sessions, most first, then by name
  std::int32_t made_on = 0;  // day
  std::optional<std::size_t>
      current;  // index of the current image: the one asked for, else the newest whose packages are known
  std::vector<std::size_t> unused;                     // rows of the current image that nobody used, most bytes first
  UnusedSum unused_all;                                // these
  UnusedSum free;                                      // of these: what could go
  std::uint64_t known = 0;                             // distributions of the current image for which there is data
  std::uint64_t packages = 0;                          // all of the current image
  std::uint64_t launched = 0, heard = 0, surplus = 0;  // over all images
  usage::UserCount users;
  GpuSummary gpu;
  std::uint64_t hidden_names = 0;  // kept back by min_sessions
};

Report make_report(usage::Snapshot snapshot, const ReportOptions& options);
Report make_report(usage::Snapshot snapshot, std::int32_t today);

// A name people know for the image: its label, else the beginning of its digest.
std::string image_name(const usage::ImageFacts& image);

enum class SortBy : std::uint8_t {
  kSessions,
  kUsers,
  kDirect,
  kTransitive,
  kBytes,
  kTrend,
  kLastUsed,
  kBound,
  kCouldGo,  // what could go first, most bytes first
  kName
};
// Which rows table, JSON and CSV have, and how the table shows them.
struct TableOptions {
  SortBy sort = SortBy::kSessions;
  bool unused_only =
      false;  // what nobody used, with what holds it; then bytes decide the order unless `sort` says otherwise
  std::size_t limit = 40;      // rows; 0 = all
  bool could_go_only = false;  // of these, what could go
  // "pip" (eggs and what no image has, too), "conda", "dpkg": only these, in one table. Empty: all, the table with
  // those of the operating system apart.
  std::set<std::string> sources = {};
};
bool has_row(const TableOptions& options, const Row& row);

void write_summary(const Report& report, std::ostream& out);  // scope, coverage and the sentence that matters
nlohmann::json report_json(const Report& report, const TableOptions& options = {});  // CLI.md: packages[], coverage
void write_table(const Report& report, std::ostream& out, const TableOptions& options = {});  // at most 100 columns
// RFC 4180; no field is a formula to a spreadsheet.
void write_csv(const Report& report, std::ostream& out, const TableOptions& options = {});
void write_html(const Report& report, std::ostream& out);  // self-contained: no network

nlohmann::json explanation_json(const usage::Explanation& explanation);
void write_explanation(const usage::Explanation& explanation, std::ostream& out);

}  // namespace varve::report
