#include "analyzer/usage/internal/use_sets.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "analyzer/usage/internal/month_cover.h"
#include "analyzer/usage/internal/months.h"
#include "analyzer/usage/internal/notebook_reader.h"
#include "analyzer/usage/internal/resolver.h"
#include "analyzer/usage/internal/user_sketch.h"

namespace varve::usage {
namespace {

constexpr std::size_t kAtOnce = 256;  // notebooks or sessions, whose rows are in memory together

// Of the query: 0 = all images, -1 = one that is not known.
std::int64_t image_id_of(SqlConnection& sql, const std::optional<Digest>& image) {
  if (!image) return 0;
  std::int64_t id = -1;
  sql.query("SELECT id FROM image WHERE digest = $1", {image->to_string()},
            [&](const SqlRow& row) { id = row.number(0); });
  return id;
}

std::unordered_map<std::int64_t, std::string> distribution_names(SqlConnection& sql) {
  std::unordered_map<std::int64_t, std::string> names;
  sql.query("SELECT id, name FROM distribution", {}, [&](const SqlRow& row) { names[row.number(0)] = row.text(1); });
  return names;
}

std::vector<std::string> names_of(const std::set<std::int64_t>& ids,
                                  const std::unordered_map<std::int64_t, std::string>& names) {
  std::vector<std::string> result;
  for (const auto id : ids)
    if (const auto found = names.find(id); found != names.end()) result.push_back(found->second);
  std::sort(result.begin(), result.end());
  return result;
}

struct ImportingNotebook {
  std::int64_t id = 0;  // of the copy whose path is the first in byte order
  NotebookImports imports;
};

std::vector<ImportingNotebook> distinct_notebooks(SqlConnection& sql) {
  std::map<std::string, ImportingNotebook> distinct;  // by digest of the code
  sql.query("SELECT id, path, language, code_digest FROM notebook", {}, [&](const SqlRow& row) {
    const auto [at, is_new] = distinct.try_emplace(row.text(3));
    auto& notebook = at->second;
    auto path = row.text(1);
    if (!is_new) ++notebook.imports.copies;
    if (!is_new && notebook.imports.path <= path) return;
    notebook.id = row.number(0);
    notebook.imports.path = std::move(path);
    notebook.imports.language = row.text(2);
    notebook.imports.code = Digest::try_parse(row.text(3)).value_or(Digest());
  });
  std::vector<ImportingNotebook> notebooks;
  for (auto& [code, notebook] : distinct) notebooks.push_back(std::move(notebook));
  std::sort(notebooks.begin(), notebooks.end(),
            [](const ImportingNotebook& a, const ImportingNotebook& b) { return a.imports.path < b.imports.path; });
  return notebooks;
}

struct Session {
  SessionUse use;
  std::set<std::int64_t> distributions;
};

// Uniform even where somebody numbered sessions instead of drawing their ids.
std::uint64_t key_of(const Bytes& session_key) {
  return load_le<std::uint64_t>(digest_of(ByteView(session_key)).raw().data());
}

}  // namespace

void read_notebook_imports(SqlConnection& sql, const Digest& image,
                           const std::function<void(NotebookImports&&)>& each) {
  auto notebooks = distinct_notebooks(sql);
  const auto names = distribution_names(sql);
  auto image_id = image_id_of(sql, image);
  sql.query("SELECT COUNT(*) FROM image WHERE id = $1 AND has_inventory = 1", {image_id},
            [&](const SqlRow& row) { image_id = row.number(0) == 0 ? 0 : image_id; });
  FleetResolver resolver(sql, image_id);
  for (std::size_t first = 0; first < notebooks.size(); first += kAtOnce) {
    const auto end = std::min(first + kAtOnce, notebooks.size());
    std::vector<SqlValue> ids;
    std::unordered_map<std::int64_t, std::size_t> places;
    for (auto i = first; i < end; ++i) {
      ids.emplace_back(notebooks[i].id);
      places[notebooks[i].id] = i;
    }
    std::vector<std::set<std::int64_t>> owners(end - first);
    std::vector<std::set<std::string>> modules(end - first), programs(end - first);
    query_in(sql, "SELECT notebook_id, name, module, kind FROM notebook_import WHERE local = 0 AND notebook_id", ids,
             "", [&](const SqlRow& row) {
               const auto place = places.at(row.number(0)) - first;
               if (row.text(2).empty() && row.text(3) == "shell") programs[place].insert(row.text(1));
               auto module = row.text(2);
               const auto& of_name = resolver.of_name(row.text(1), module);
               owners[place].insert(of_name.begin(), of_name.end());
               if (row.text(3) != "call" && !module.empty() && !resolver.of_module(module).empty())
                 modules[place].insert(std::move(module));
             });
    query_in(sql, "SELECT notebook_id, package FROM notebook_install WHERE notebook_id", ids, "",
             [&](const SqlRow& row) {
               const auto& of_package = resolver.of_distribution(row.text(1));
               owners[places.at(row.number(0)) - first].insert(of_package.begin(), of_package.end());
             });
    for (auto i = first; i < end; ++i) {
      auto& imports = notebooks[i].imports;
      imports.distributions = names_of(owners[i - first], names);
      imports.modules.assign(modules[i - first].begin(), modules[i - first].end());
      imports.programs.assign(programs[i - first].begin(), programs[i - first].end());
      each(std::move(imports));
    }
  }
}

SessionSample read_sessions(SqlConnection& sql, const SnapshotQuery& query, std::uint64_t at_most,
                            const std::function<void(SessionUse&&)>& each) {
  const auto image_id = image_id_of(sql, query.image);
  SessionSample sample;
  sql.query(
      "SELECT COUNT(*) FROM session WHERE heard = 1 AND surplus = 0 AND day BETWEEN $1 AND $2 "
      "AND (image_id = $3 OR $3 = 0)",
      {query.window.first, query.window.last, image_id},
      [&](const SqlRow& row) { sample.kept = std::uint64_t(row.number(0)); });
  std::vector<std::pair<std::int64_t, Session>> sessions;
  // Their keys are random, so the first ones are as good a sample as any.
  sql.query(
      "SELECT id, session_key, day FROM session WHERE heard = 1 AND surplus = 0 AND day BETWEEN $1 AND $2 "
      "AND (image_id = $3 OR $3 = 0) ORDER BY session_key LIMIT $4",
      {query.window.first, query.window.last, image_id, std::int64_t(std::min<std::uint64_t>(at_most, INT32_MAX))},
      [&](const SqlRow& row) {
        Session session;
        session.use.key = key_of(row.blob(1));
        session.use.day = std::int32_t(row.number(2));
        sessions.emplace_back(row.number(0), std::move(session));
      });
  sample.given = sessions.size();
  const auto names = distribution_names(sql);
  for (std::size_t first = 0; first < sessions.size(); first += kAtOnce) {
    const auto end = std::min(first + kAtOnce, sessions.size());
    std::vector<SqlValue> ids;
    std::unordered_map<std::int64_t, Session*> by_id;
    for (auto i = first; i < end; ++i) {
      ids.emplace_back(sessions[i].first);
      by_id[sessions[i].first] = &sessions[i].second;
    }
    const auto take = [&](const SqlRow& row) { by_id.at(row.number(0))->distributions.insert(row.number(1)); };
    query_in(sql,
             "SELECT DISTINCT session_id, CASE WHEN named_id <> 0 THEN named_id ELSE distribution_id END "
             "FROM session CROSS JOIN session_module CROSS JOIN module_owner WHERE session_id = session.id "
             "AND module_owner.image_id = session.image_id AND module_owner.module_id = session_module.module_id "
             "AND session.id",
             ids, "", take);
    query_in(sql, "SELECT session_id, distribution_id FROM session_file WHERE session_id", ids, "", take);
    for (auto i = first; i < end; ++i) {
      auto& session = sessions[i].second;
      session.use.distributions = names_of(session.distributions, names);
      each(std::move(session.use));
      session = {};
    }
  }
  return sample;
}

SetUse read_set_use(SqlConnection& sql, const SnapshotQuery& query, const std::vector<std::string>& distributions) {
  const auto image_id = image_id_of(sql, query.image);
  std::vector<SqlValue> ids;
  {
    const std::set<std::string> asked(distributions.begin(), distributions.end());
    for (const auto& [id, name] : distribution_names(sql))
      if (asked.contains(name)) ids.emplace_back(id);
  }
  const CountedMonths counted(sql, query.window);
  const auto window = counted.window();
  const auto of_image = image_id == 0 ? std::string() : fmt::format(" AND image_id = {}", image_id);
  struct Day {
    std::uint64_t largest = 0, sum = 0, heard = 0;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, Day> days;  // day, image; a month whose days are gone is one
  query_in(sql,
           "SELECT day, image_id, used FROM " +
               counted.from_days("use", "image_id, distribution_id, sessions + files_only AS used", of_image) +
               " WHERE distribution_id",
           ids, "", [&](const SqlRow& row) {
             auto& day = days[{row.number(0), row.number(1)}];
             const auto used = std::uint64_t(row.number(2));
             day.largest = std::max(day.largest, used);
             day.sum += used;
           });
  sql.query(fmt::format("SELECT day, image_id, heard + surplus FROM daily_session WHERE day BETWEEN {} AND {}{}",
                        window.first, window.last, of_image),
            {}, [&](const SqlRow& row) {
              const auto day = counted.stands_as(std::int32_t(row.number(0)));
              if (const auto found = days.find({day, row.number(1)}); found != days.end())
                found->second.heard += std::uint64_t(row.number(2));
            });
  SetUse use;
  for (const auto& [at, day] : days) {
    use.sessions_at_least += day.largest;
    use.sessions_at_most += std::max(day.largest, std::min(day.sum, day.heard));
  }
  struct Month {
    UserSketch sketch;
    std::uint64_t largest = 0, sum = 0;  // of distributions of which only the number of users is left
  };
  std::map<std::int32_t, Month> months;
  query_in(sql,
           fmt::format("SELECT month, sketch, users FROM user_sketch WHERE kind = {} AND month BETWEEN {} AND {} "
                       "AND image_id = {} AND subject_id",
                       int(SketchKind::kDistribution), month_of(window.first), month_of(window.last), image_id),
           ids, "", [&](const SqlRow& row) {
             auto& month = months[std::int32_t(row.number(0))];
             if (const auto sketch = row.blob(1); !sketch.empty()) return month.sketch.merge(UserSketch::parse(sketch));
             const auto users = std::uint64_t(row.number(2));
             month.largest = std::max(month.largest, users);
             month.sum += users;
           });
  const MonthCover cover(sql);
  for (const auto& [number, month] : months) {
    const auto known = month.sketch.count();
    use.users.at_most += known + month.sum;
    if (cover.covers(window, number)) use.users.at_least = std::max({use.users.at_least, known, month.largest});
  }
  use.users = within(use.users, use.sessions_at_most);
  return use;
}

}  // namespace varve::usage
