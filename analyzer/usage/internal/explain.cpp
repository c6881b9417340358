#include "analyzer/usage/internal/explain.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "analyzer/python/name.h"
#include "analyzer/usage/internal/clean_text.h"
#include "analyzer/usage/internal/notebook_reader.h"
#include "analyzer/usage/internal/snapshot_reader.h"
#include "analyzer/usage/internal/user_sketch.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

// What a name stands for: a distribution of that name, those that own the module or what lies below it, or a program.
std::set<std::int64_t> distributions_of(SqlConnection& sql, const std::string& name) {
  std::set<std::int64_t> ids;
  const auto take = [&](const SqlRow& row) { ids.insert(row.number(0)); };
  sql.query("SELECT id FROM distribution WHERE name = $1", {python::normalize_name(name)}, take);
  FleetResolver resolver(sql, 0);
  for (const auto* owners : {&resolver.of_module(name), &resolver.of_program(name)})
    ids.insert(owners->begin(), owners->end());
  // A namespace ("google.cloud"): everything in it.
  sql.query("SELECT DISTINCT distribution_id FROM image_module WHERE substr(name, 1, $2) = $1",
            {name + ".", std::int64_t(name.size() + 1)}, take);
  return ids;
}

class EvidenceReader {
 public:
  // `names` are those of `distributions`. All arguments must outlive it.
  EvidenceReader(SqlConnection& sql, const SnapshotQuery& query, const std::string& asked,
                 const std::set<std::int64_t>& distributions, const std::vector<std::string>& names)
      : sql_(sql), query_(query), asked_(asked), distributions_(distributions), names_(names.begin(), names.end()) {
    sql_.query("SELECT id, digest FROM image", {}, [&](const SqlRow& row) {
      images_[row.number(0)] = Digest::try_parse(row.text(1));
      if (query.image && row.text(1) == query.image->to_string()) image_id_ = row.number(0);
    });
    if (query.image && image_id_ == 0) image_id_ = -1;
  }

  std::vector<Evidence> read() {
    for (const auto distribution : distributions_) {
      read_sessions(distribution);
      read_copies(distribution);
      read_edges(distribution);
      read_installs(distribution);
      read_packages(distribution);
      read_months(distribution);
      read_earlier(distribution);
    }
    read_notebooks();
    read_failed();
    std::stable_sort(evidence_.begin(), evidence_.end(),
                     [](const Evidence& a, const Evidence& b) { return a.day > b.day; });
    if (evidence_.size() > kMaxEvidence) evidence_.resize(kMaxEvidence);
    return std::move(evidence_);
  }

 private:
  // With the window as $1 and $2, the image (0 = all) as $3 and the distribution as $4.
  void query(const char* sql, std::int64_t distribution, const std::function<void(const SqlRow&)>& each) {
    sql_.query(sql, {query_.window.first, query_.window.last, image_id_, distribution}, each);
  }
  void add(const char* kind, std::int64_t day, std::int64_t image, std::int64_t count, std::string detail) {
    evidence_.push_back({.kind = kind,
                         .day = std::int32_t(day),
                         .image = image == 0 ? std::nullopt : images_[image],
                         .count = std::uint64_t(count),
                         .detail = std::move(detail)});
  }

  void read_sessions(std::int64_t distribution) {
    query(
        "SELECT day, image_id, sessions, direct, transitive_only, sessions - direct - transitive_only, image_copy, "
        "session_copy, file_sessions, exec_sessions, files_only FROM daily_use WHERE day BETWEEN $1 AND $2 "
        "AND (image_id = $3 OR $3 = 0) AND distribution_id = $4 ORDER BY day DESC",
        distribution, [&](const SqlRow& row) {
          if (row.number(2) > 0)
            add("session", row.number(0), row.number(1), row.number(2),
                fmt::format(
                    "{} imported it directly, {} only through other libraries, {} only named it in a cell when it was "
                    "loaded; {} loaded the image's copy, {} their own",
                    row.number(3), row.number(4), row.number(5), row.number(6), row.number(7)));
          if (row.number(8) > 0)
            add("file", row.number(0), row.number(1), row.number(8),
                fmt::format("opened its files{}; {} of them loaded nothing of it",
                            row.number(9) > 0 ? fmt::format(", {} of them ran a program of it", row.number(9)) : "",
                            row.number(10)));
        });
  }

  void read_copies(std::int64_t distribution) {
    query(
        "SELECT day, image_id, version, COUNT(*) FROM session_copy JOIN session ON session.id = session_id "
        "WHERE day BETWEEN $1 AND $2 AND (image_id = $3 OR $3 = 0) AND distribution_id = $4 "
        "GROUP BY day, image_id, version",
        distribution, [&](const SqlRow& row) {
          add("session", row.number(0), row.number(1), row.number(3),
              row.text(2).empty() ? "loaded a copy of their own"
                                  : fmt::format("loaded a copy of their own, version {}", row.text(2)));
        });
  }

  void read_edges(std::int64_t distribution) {
    query(
        "SELECT MAX(day), image_id, name, SUM(sessions) FROM daily_edge "
        "JOIN distribution ON distribution.id = importer_id WHERE day BETWEEN $1 AND $2 "
        "AND (image_id = $3 OR $3 = 0) AND distribution_id = $4 GROUP BY image_id, name",
        distribution, [&](const SqlRow& row) {
          add("import-edge", row.number(0), row.number(1), row.number(3), "by " + row.text(2));
        });
  }

  void read_installs(std::int64_t distribution) {
    query(
        "SELECT day, image_id, from_version, to_version, why, sessions FROM daily_reinstall "
        "JOIN reinstall ON reinstall.id = reinstall_id WHERE day BETWEEN $1 AND $2 "
        "AND (image_id = $3 OR $3 = 0) AND distribution_id = $4",
        distribution, [&](const SqlRow& row) {
          const auto from = row.text(2).empty() ? "absent" : row.text(2),
                     to = row.text(3).empty() ? "absent" : row.text(3);
          add("install", row.number(0), row.number(1), row.number(5),
              fmt::format("{} -> {} ({})", from, to, row.text(4)));
        });
  }

  void read_packages(std::int64_t distribution) {
    sql_.query(
        "SELECT image_id, version, source, files, bytes, imports, required FROM package WHERE distribution_id = $1 "
        "AND (image_id = $2 OR $2 = 0)",
        {distribution, image_id_}, [&](const SqlRow& row) {
          add("package", 0, row.number(0), row.number(3),
              fmt::format("version {} ({}), {} bytes, imports {}", row.text(1), row.text(2), row.number(4),
                          fmt::join(parse_texts(row.text(5)), " ")));
        });
  }

  void read_months(std::int64_t distribution) {
    sql_.query(
        "SELECT month, users FROM user_sketch WHERE month BETWEEN $1 AND $2 AND image_id = $3 "
        "AND kind = $4 AND subject_id = $5 ORDER BY month",
        {month_of(query_.window.first), month_of(query_.window.last), image_id_,
         std::int64_t(SketchKind::kDistribution), distribution},
        [&](const SqlRow& row) {
          const auto first = first_day_of_month(std::int32_t(row.number(0)));
          add("month", first, 0, row.number(1), fmt::format("users in {}", day_text(first).substr(0, 7)));
        });
  }

  // Months whose days are gone.
  void read_earlier(std::int64_t distribution) {
    const auto in_month = [&](std::string_view month) {
      return fmt::format(
          "{0} IN (SELECT month FROM counted_month WHERE days_gone = 1) AND {0} BETWEEN $1 AND $2 "
          "AND (image_id = $3 OR $3 = 0) AND distribution_id = $4",
          month);
    };
    const auto query_months = [&](const std::string& sql, const std::function<void(const SqlRow&)>& each) {
      sql_.query(sql, {month_of(query_.window.first), month_of(query_.window.last), image_id_, distribution}, each);
    };
    query_months("SELECT month, image_id, sessions, direct, files_only FROM monthly_use WHERE " + in_month("month"),
                 [&](const SqlRow& row) {
                   const auto first = first_day_of_month(std::int32_t(row.number(0)));
                   add("session", first, row.number(1), row.number(2) + row.number(4),
                       fmt::format("in {}, by month: {} loaded it, {} of them directly; {} only opened its files",
                                   day_text(first).substr(0, 7), row.number(2), row.number(3), row.number(4)));
                 });
    query_months(
        "SELECT MAX(month), image_id, name, SUM(sessions) FROM monthly_edge "
        "JOIN distribution ON distribution.id = importer_id WHERE " +
            in_month("month") + " GROUP BY image_id, name",
        [&](const SqlRow& row) {
          add("import-edge", first_day_of_month(std::int32_t(row.number(0))), row.number(1), row.number(3),
              "by " + row.text(2));
        });
  }

  void read_notebooks() {
    FleetResolver resolver(sql_, image_id_);
    sql_.query(
        "SELECT notebook_import.name, path, kind, cell, line, day, module FROM notebook_import "
        "JOIN notebook ON notebook.id = notebook_id WHERE local = 0",
        {}, [&](const SqlRow& row) {
          const auto& owners = resolver.of_name(row.text(0), row.text(6));
          const bool counts =
              std::any_of(owners.begin(), owners.end(), [&](auto owner) { return distributions_.contains(owner); });
          if (!counts || notebooks_ >= kMaxEvidence) return;
          ++notebooks_;
          add("notebook", row.number(5), 0, 1,
              fmt::format("cell {} line {} of {}: {} ({})", row.number(3), row.number(4), row.text(1), row.text(0),
                          row.text(2)));
        });
    sql_.query(
        "SELECT package, path, tool, argument, cell, line, day FROM notebook_install "
        "JOIN notebook ON notebook.id = notebook_id",
        {}, [&](const SqlRow& row) {
          if (!names_.contains(row.text(0)) || notebooks_ >= kMaxEvidence) return;
          ++notebooks_;
          add("notebook", row.number(6), 0, 1,
              fmt::format("cell {} line {} of {}: installs {} ({})", row.number(4), row.number(5), row.text(1),
                          row.text(3), row.text(2)));
        });
  }

  void read_failed() {
    sql_.query(
        "SELECT day, image_id, name, daily_failed.sessions FROM daily_failed "
        "JOIN failed_name ON failed_name.id = failed_id WHERE day BETWEEN $1 AND $2 "
        "AND (image_id = $3 OR $3 = 0) AND (name = $4 OR substr(name, 1, $6) = $5)",
        {query_.window.first, query_.window.last, image_id_, asked_, asked_ + ".", std::int64_t(asked_.size() + 1)},
        [&](const SqlRow& row) {
          add("failed", row.number(0), row.number(1), row.number(3), "no module named " + row.text(2));
        });
  }

  SqlConnection& sql_;
  const SnapshotQuery& query_;
  const std::string& asked_;
  const std::set<std::int64_t>& distributions_;
  std::set<std::string> names_;
  std::map<std::int64_t, std::optional<Digest>> images_;
  std::int64_t image_id_ = 0;
  std::size_t notebooks_ = 0;
  std::vector<Evidence> evidence_;
};

}  // namespace

Explanation explain_name(SqlConnection& sql, const std::string& asked, const SnapshotQuery& query) {
  const auto name = clean_text(asked);
  Explanation explanation;
  explanation.asked = asked;
  const auto distributions = distributions_of(sql, name);
  for (const auto id : distributions)
    sql.query("SELECT name FROM distribution WHERE id = $1", {id},
              [&](const SqlRow& row) { explanation.distributions.push_back(row.text(0)); });
  std::sort(explanation.distributions.begin(), explanation.distributions.end());
  auto snapshot = SnapshotReader(sql, query, distributions).read();
  for (auto& use : snapshot.distributions) explanation.use.push_back(std::move(use));
  for (auto& failed : snapshot.failed)
    if (failed.module == name || failed.module.starts_with(name + ".")) explanation.failed.push_back(std::move(failed));
  explanation.images = std::move(snapshot.images);
  explanation.evidence = EvidenceReader(sql, query, name, distributions, explanation.distributions).read();
  return explanation;
}

}  // namespace varve::usage
