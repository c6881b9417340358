#pragma once
// Every run of the GPU check that was ever made, in an SQL database (SQLite in a file, or PostgreSQL for a fleet).
// Described in docs/formats/gpu-history.md.
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/check_result.h"
#include "gpu/judge.h"

namespace varve::gpu {

// Histories with different keys are never mixed.
struct SeriesKey {
  std::string metric, gpu, driver, family;
  MetricKind kind = MetricKind::kSteady;
  auto operator<=>(const SeriesKey&) const = default;
};

// "" is any; of a run's own series it is a run that had none.
struct SeriesFilter {
  std::string metric, gpu, driver, family;
  bool of_run = false;
  static SeriesFilter of(const RunIdentity& run) {
    return {.metric = {}, .gpu = run.machine.gpu, .driver = run.machine.driver, .family = run.family, .of_run = true};
  }
};

// Somebody said that a change is here to stay: the baseline begins anew with from_hour, and older hours are left alone.
struct Acceptance {
  std::int64_t from_hour = 0;
  std::int64_t unix_seconds = 0;  // when it was said
  std::string user, reason;
};

struct Series {
  SeriesKey key;
  // Ascending; what judge() wants of them and all since; none before the acceptance.
  std::vector<Hour> hours;
  bool current = false;  // the last hour is the one that was asked for: the metric was measured then
  std::optional<Acceptance> accepted;
};

struct PastFailure {
  std::int64_t unix_seconds = 0;
  std::string step, detail;
};

// A fact of runs (the image's digest, a library's path, the machine) of which the slow hours have no value that the
// clean ones had.
struct Change {
  std::string name, before, now;  // values joined by ", ", "" where there was none
};

// Not shared between threads; several processes may use one database, a writer waits for the other. Throws as core/sql
// does: TemporaryError where trying again may help, CorruptData for a file that is no GPU history, Unsupported for one
// of a newer program.
class History {
 public:
  // "postgresql://...", or a file, made if it is not there.
  static History open(const std::string& path_or_url);
  History(History&&) noexcept;
  History& operator=(History&&) noexcept;
  ~History();

  // One transaction: all of a run or nothing. Runs of one hour join their samples. Each hour that the run has samples
  // of is judged by those before it, and what was found is kept with it, so that a lasting slowdown does not become the
  // baseline by lasting. Metrics of throttled results are kept and marked, and never returned by series(). A metric
  // that is no time above 0, or has no proper name, becomes a warning. False, and nothing changes, if the very same run
  // is there already: adding again after a TemporaryError is harmless.
  bool add(const RunIdentity& run, const std::vector<StepResult>& results);
  // As they were in that hour (Unix seconds / 3600): later hours are left out, so that a run which a wrong clock put
  // into the future judges nobody. In the order of their names.
  std::vector<Series> series(const SeriesFilter& filter,
                             std::int64_t until_hour = std::numeric_limits<std::int64_t>::max()) const;
  // Of the newest so many runs, newest first.
  std::vector<PastFailure> failures(const SeriesFilter& filter, std::uint32_t last_runs) const;
  // What is different since the first slow hour of a series.
  std::vector<Change> changes(const Series& series, std::int64_t since_hour) const;

  // From acceptance.from_hour on, or where that is 0 from the first hour of each series' present slowdown (its last
  // hour if it is not slow). Hours since then are judged anew. Returns what was accepted. Throws NotFound if no series
  // fits, naming the metrics there are.
  std::vector<Series> accept(const SeriesFilter& filter, const Acceptance& acceptance);

  // Removes what is older than so many days, but not the clean hours that a living series is judged by; returns how
  // many runs lost their results.
  std::uint64_t forget(std::uint32_t days, std::int64_t now_unix_seconds);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  explicit History(std::unique_ptr<Impl> impl);
};

}  // namespace varve::gpu
