#include "analyzer/usage/internal/snapshot_reader.h"

#include <algorithm>
#include <tuple>

#include <fmt/ranges.h>

#include "analyzer/python/name.h"
#include "analyzer/usage/internal/clean_text.h"
#include "analyzer/usage/internal/notebook_reader.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

constexpr const char* kInWindow = " WHERE day BETWEEN $1 AND $2 AND (image_id = $3 OR $3 = 0) ";

Digest digest_from(const std::string& text) { return Digest::try_parse(text).value_or(Digest()); }

std::uint64_t unsigned_at(const SqlRow& row, int column) {
  return std::uint64_t(std::max<std::int64_t>(row.number(column), 0));
}

std::string in_window(std::string_view select, std::string_view rest) {
  return std::string(select) + kInWindow + std::string(rest);
}

}  // namespace

SnapshotReader::SnapshotReader(SqlConnection& sql, const SnapshotQuery& query,
                               const std::optional<std::set<std::int64_t>>& only)
    : sql_(sql), query_(query), counted_(sql, query.window), only_(only) {
  query_.window = counted_.window();
  if (only_)
    only_these_ =
        only_->empty() ? " AND 1 = 0 " : fmt::format(" AND distribution_id IN ({}) ", fmt::join(*only_, ", "));
  snapshot_.window = query_.window;
  snapshot_.by_day_from = counted_.by_day_from();
  snapshot_.image = query.image;
  sql_.query("SELECT id, digest FROM image", {},
             [&](const SqlRow& row) { image_digests_[row.number(0)] = row.text(1); });
  if (!query.image) return;
  image_id_ = -1;
  for (const auto& [id, digest] : image_digests_)
    if (digest == query.image->to_string()) image_id_ = id;
}

std::string SnapshotReader::of_these() const {
  return image_id_ == 0 ? only_these_ : fmt::format(" AND image_id = {}{}", image_id_, only_these_);
}

void SnapshotReader::query(const std::string& sql, const std::function<void(const SqlRow&)>& each) {
  sql_.query(sql, {query_.window.first, query_.window.last, image_id_}, each);
}

Snapshot SnapshotReader::read() {
  sql_.query("SELECT id, name, display_name FROM distribution", {}, [&](const SqlRow& row) {
    names_[row.number(0)] = {row.text(1), row.text(2)};
  });
  read_images();
  read_layers();
  read_packages();
  read_uses();
  if (!query_.totals_only) read_use_days();
  read_importers();
  if (!query_.totals_only) read_modules();
  read_failed();
  read_reinstalls();
  read_rest();
  FleetResolver resolver(sql_, image_id_);
  std::map<std::int64_t, std::string> plain_names;
  for (const auto& [id, names] : names_) plain_names[id] = names.first;
  for (const auto& [distribution, use] : read_notebooks(sql_, resolver, plain_names, snapshot_)) {
    if (only_ && !only_->contains(distribution)) continue;
    use_of(distribution).notebooks = use.notebooks;
    use_of(distribution).notebooks_optional = use.optional;
  }
  read_first_and_last();
  read_shared_owners();
  read_users();
  finish();
  return std::move(snapshot_);
}

DistributionUse& SnapshotReader::use_of(std::int64_t distribution) {
  const auto [at, is_new] = uses_.try_emplace(distribution);
  if (is_new) {
    const auto name = names_.find(distribution);
    if (name != names_.end()) {
      at->second.name = name->second.first;
      at->second.display_name = name->second.second;
    }
  }
  return at->second;
}

void SnapshotReader::read_images() {
  sql_.query("SELECT id, digest, label, python, has_inventory FROM image WHERE id = $1 OR $1 = 0", {image_id_},
             [&](const SqlRow& row) {
               auto& image = images_[row.number(0)];
               image.digest = digest_from(row.text(1));
               image.label = row.text(2);
               image.python = row.text(3);
               image.has_inventory = row.number(4) != 0;
             });
  query(in_window("SELECT image_id, SUM(launched), SUM(heard), SUM(gpu), SUM(gpu_used), SUM(gpu_unused_seconds), "
                  "SUM(gpu_idle_seconds), SUM(gpu_incapable), SUM(gpu_incapable_seconds), SUM(surplus) "
                  "FROM daily_session",
                  "GROUP BY image_id"),
        [&](const SqlRow& row) {
          auto& image = images_[row.number(0)];
          image.launched = unsigned_at(row, 1);
          image.heard = unsigned_at(row, 2);
          image.gpu_sessions = unsigned_at(row, 3);
          image.gpu_used_sessions = unsigned_at(row, 4);
          image.gpu_unused_seconds = unsigned_at(row, 5);
          image.gpu_idle_seconds = unsigned_at(row, 6);
          image.gpu_incapable_sessions = unsigned_at(row, 7);
          image.gpu_incapable_seconds = unsigned_at(row, 8);
          image.surplus = unsigned_at(row, 9);
        });
  // What was neither heard of in this window nor known by its packages says nothing.
  std::erase_if(images_, [](const auto& entry) { return !entry.second.has_inventory && entry.second.launched == 0; });
  sql_.query("SELECT image_id, MIN(day) FROM daily_session GROUP BY image_id", {},
             [&](const SqlRow& row) { first_days_[row.number(0)] = std::int32_t(row.number(1)); });
  query(in_window("SELECT day, SUM(heard) FROM daily_session", "GROUP BY day HAVING SUM(heard) > 0 ORDER BY day"),
        [&](const SqlRow& row) {
          // As the days of distributions: months whose days are gone stand at their first day.
          const auto day = counted_.stands_as(std::int32_t(row.number(0)));
          auto& days = snapshot_.heard_days;
          if (days.empty() || days.back().day != day) days.push_back({.day = day, .sessions = 0});
          days.back().sessions += unsigned_at(row, 1);
        });
}

void SnapshotReader::read_layers() {
  sql_.query(
      "SELECT image_id, number, digest, compressed_bytes, stream_bytes, created_by FROM layer "
      "WHERE image_id = $1 OR $1 = 0 ORDER BY image_id, number",
      {image_id_}, [&](const SqlRow& row) {
        snapshot_.layers.push_back({.image = digest_from(image_digests_[row.number(0)]),
                                    .layer = std::uint32_t(row.number(1)),
                                    .digest = digest_from(row.text(2)),
                                    .compressed_bytes = unsigned_at(row, 3),
                                    .stream_bytes = unsigned_at(row, 4),
                                    .created_by = row.text(5)});
      });
}

void SnapshotReader::read_packages() {
  sql_.query(
      std::string(
          "SELECT image_id, distribution_id, version, source, files, bytes, compressed_bytes, gpu, layers, imports, "
          "required FROM package ") +
          "WHERE (image_id = $1 OR $1 = 0)" + only_these_ + "ORDER BY image_id, number",
      {image_id_}, [&](const SqlRow& row) {
        use_of(row.number(1))
            .packages.push_back({.image = digest_from(image_digests_[row.number(0)]),
                                 .version = row.text(2),
                                 .source = row.text(3),
                                 .files = unsigned_at(row, 4),
                                 .bytes = unsigned_at(row, 5),
                                 .compressed_bytes = unsigned_at(row, 6),
                                 .layers = parse_numbers(row.text(8)),
                                 .imports = parse_texts(row.text(9)),
                                 .required = parse_texts(row.text(10)),
                                 .gpu = row.number(7) != 0});
      });
}

void SnapshotReader::read_uses() {
  sql_.query(
      fmt::format("SELECT distribution_id, SUM(sessions), SUM(direct), SUM(transitive_only), SUM(image_copy), "
                  "SUM(session_copy), SUM(file_sessions), SUM(exec_sessions), SUM(static), SUM(files_only) FROM {} "
                  "GROUP BY distribution_id",
                  counted_.from("use",
                                "distribution_id, sessions, direct, transitive_only, image_copy, session_copy, "
                                "file_sessions, exec_sessions, static, files_only",
                                of_these())),
      {}, [&](const SqlRow& row) {
        auto& use = use_of(row.number(0));
        use.sessions = unsigned_at(row, 1);
        use.direct = unsigned_at(row, 2);
        use.transitive_only = unsigned_at(row, 3);
        use.image_copy = unsigned_at(row, 4);
        use.session_copy = unsigned_at(row, 5);
        use.file_sessions = unsigned_at(row, 6);
        use.exec_sessions = unsigned_at(row, 7);
        use.static_sessions = unsigned_at(row, 8);
        use.files_only = unsigned_at(row, 9);
      });
}

void SnapshotReader::read_use_days() {
  sql_.query(
      fmt::format("SELECT distribution_id, day, SUM(used) FROM {} WHERE used > 0 GROUP BY distribution_id, day "
                  "ORDER BY distribution_id, day",
                  counted_.from_days("use", "distribution_id, sessions + files_only AS used", of_these())),
      {}, [&](const SqlRow& row) {
        use_of(row.number(0)).days.push_back({.day = std::int32_t(row.number(1)), .sessions = unsigned_at(row, 2)});
      });
}

void SnapshotReader::read_first_and_last() {
  const auto take = [&](const SqlRow& row) {
    // Only what has a line anyway: a use outside the window does not make one.
    const auto found = uses_.find(row.number(0));
    if (found == uses_.end()) return;
    auto& use = found->second;
    const auto first = std::int32_t(row.number(1)), last = std::int32_t(row.number(2));
    use.first_used = use.first_used == 0 ? first : std::min(use.first_used, first);
    use.last_used = std::max(use.last_used, last);
  };
  sql_.query(
      fmt::format("SELECT distribution_id, MIN(day), MAX(day) FROM daily_use WHERE ({}) AND (image_id = $1 OR $1 = 0) "
                  "GROUP BY distribution_id",
                  days_without_sums(sql_)),
      {image_id_}, take);
  sql_.query(
      "SELECT distribution_id, MIN(first_day), MAX(last_day) FROM monthly_use WHERE (image_id = $1 OR $1 = 0) "
      "AND month IN (SELECT month FROM counted_month) GROUP BY distribution_id",
      {image_id_}, take);
  sql_.query(
      "SELECT distribution_id, MIN(first_day), MAX(last_day) FROM earlier_use WHERE image_id = $1 OR $1 = 0 "
      "GROUP BY distribution_id",
      {image_id_}, take);
}

void SnapshotReader::read_shared_owners() {
  sql_.query(
      "SELECT DISTINCT a.distribution_id, b.distribution_id FROM image_module a "
      "JOIN image_module b ON a.image_id = b.image_id AND a.name = b.name "
      "WHERE a.distribution_id <> b.distribution_id AND (a.image_id = $1 OR $1 = 0)",
      {image_id_}, [&](const SqlRow& row) {
        const auto found = uses_.find(row.number(0));
        if (found != uses_.end()) found->second.shared_with.push_back(names_[row.number(1)].first);
      });
}

void SnapshotReader::read_importers() {
  sql_.query(fmt::format("SELECT distribution_id, importer_id, SUM(sessions) FROM {} "
                         "GROUP BY distribution_id, importer_id",
                         counted_.from("edge", "distribution_id, importer_id, sessions", of_these())),
             {}, [&](const SqlRow& row) {
               use_of(row.number(0)).importers[names_[row.number(1)].first] = unsigned_at(row, 2);
             });
}

void SnapshotReader::read_modules() {
  sql_.query(fmt::format("SELECT of_module.distribution_id, name, sessions FROM (SELECT distribution_id, module_id, "
                         "SUM(sessions) AS sessions FROM {} GROUP BY distribution_id, module_id) AS of_module "
                         "JOIN module ON module.id = module_id",
                         counted_.from("module", "distribution_id, module_id, sessions", of_these())),
             {}, [&](const SqlRow& row) {
               auto& modules = row.number(0) == 0 ? snapshot_.unresolved : use_of(row.number(0)).modules;
               modules[row.text(1)] = unsigned_at(row, 2);
             });
}

void SnapshotReader::read_failed() {
  query(in_window("SELECT failed_id, name, SUM(daily_failed.sessions), MAX(day) FROM daily_failed "
                  "JOIN failed_name ON failed_name.id = failed_id",
                  "GROUP BY failed_id, name"),
        [&](const SqlRow& row) {
          if (row.text(1).empty()) {
            ++snapshot_.hidden_failed_names;
            return;
          }
          failed_[row.number(0)] = {.module = row.text(1),
                                    .sessions = unsigned_at(row, 2),
                                    .users = {},
                                    .last_day = std::int32_t(row.number(3)),
                                    .distribution = {}};
        });
  for (auto& [id, failed] : failed_) {
    std::string owner;
    sql_.query(
        "SELECT MIN(distribution.name) FROM image_module JOIN distribution ON distribution.id = distribution_id "
        "WHERE image_module.name = $1",
        {failed.module}, [&](const SqlRow& row) { owner = row.text(0); });
    if (owner.empty())
      sql_.query(
          "SELECT MIN(name) FROM distribution WHERE name = $1 AND EXISTS (SELECT 1 FROM package "
          "WHERE distribution_id = distribution.id)",
          {python::normalize_name(failed.module)}, [&](const SqlRow& row) { owner = row.text(0); });
    failed.distribution = owner;
  }
}

void SnapshotReader::read_reinstalls() {
  query(in_window(
            "SELECT reinstall_id, distribution_id, from_version, to_version, why, SUM(sessions) FROM daily_reinstall "
            "JOIN reinstall ON reinstall.id = reinstall_id",
            "GROUP BY reinstall_id, distribution_id, from_version, to_version, why"),
        [&](const SqlRow& row) {
          reinstalls_[row.number(0)] = {.distribution = names_[row.number(1)].first,
                                        .from = row.text(2),
                                        .to = row.text(3),
                                        .why = row.text(4),
                                        .sessions = unsigned_at(row, 5),
                                        .users = {}};
        });
}

void SnapshotReader::read_rest() {
  query(in_window("SELECT name, SUM(sessions) FROM daily_gpu_model JOIN gpu_model ON gpu_model.id = model_id",
                  "GROUP BY name"),
        [&](const SqlRow& row) { snapshot_.gpu_models[row.text(0)] = unsigned_at(row, 1); });
  sql_.query("SELECT COUNT(*) FROM quarantine", {},
             [&](const SqlRow& row) { snapshot_.quarantined = unsigned_at(row, 0); });
}

void SnapshotReader::finish() {
  for (auto& [id, image] : images_) snapshot_.images.push_back(std::move(image));
  std::map<Digest, std::int32_t> first_by_digest;
  for (const auto& [id, digest] : image_digests_) {
    const auto found = first_days_.find(id);
    first_by_digest[digest_from(digest)] = found == first_days_.end() ? INT32_MAX : found->second;
  }
  std::stable_sort(snapshot_.images.begin(), snapshot_.images.end(), [&](const ImageFacts& a, const ImageFacts& b) {
    return first_by_digest[a.digest] > first_by_digest[b.digest];
  });
  for (auto& [id, use] : uses_) {
    std::sort(use.shared_with.begin(), use.shared_with.end());
    snapshot_.distributions.push_back(std::move(use));
  }
  std::sort(snapshot_.distributions.begin(), snapshot_.distributions.end(),
            [](const DistributionUse& a, const DistributionUse& b) { return a.name < b.name; });
  for (auto& [id, failed] : failed_) snapshot_.failed.push_back(std::move(failed));
  std::sort(snapshot_.failed.begin(), snapshot_.failed.end(), [](const FailedImport& a, const FailedImport& b) {
    return a.sessions != b.sessions ? a.sessions > b.sessions : a.module < b.module;
  });
  for (auto& [id, reinstall] : reinstalls_) snapshot_.reinstalls.push_back(std::move(reinstall));
  std::sort(snapshot_.reinstalls.begin(), snapshot_.reinstalls.end(), [](const Reinstall& a, const Reinstall& b) {
    if (a.sessions != b.sessions) return a.sessions > b.sessions;
    return std::tie(a.distribution, a.from, a.to, a.why) < std::tie(b.distribution, b.from, b.to, b.why);
  });
}

}  // namespace varve::usage
