// The usage database under load: import events collected per second, and the time of a report over a year of a large
// fleet.
//   usage_bench collect --events 10000000 --db usage.db
//   usage_bench report --sessions-per-day 10000 --days 365 --db usage.db
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "analyzer/usage/database.h"
#include "analyzer/usage/internal/daily_counts.h"
#include "analyzer/usage/internal/names.h"
#include "analyzer/usage/internal/partitions.h"
#include "analyzer/usage/internal/schema.h"
#include "analyzer/usage/internal/user_sketch.h"
#include "analyzer/usage/internal/writer.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

struct Options {
  std::string db = "usage_bench.db";
  std::filesystem::path spool = "usage_bench_spool";
  std::uint64_t events = 10'000'000;
  unsigned events_per_session = 1000;
  std::int32_t days = 365;
  unsigned sessions_per_day = 10'000;
  unsigned distributions = 900;
  unsigned unused = 100;  // that the images have, too, and nobody uses
  unsigned modules_per_distribution = 40;
};

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Digest bench_image(unsigned number) { return digest_of(fmt::format("bench image {}", number)); }

std::string module_name(unsigned distribution, unsigned module) {
  return module == 0 ? fmt::format("library{}", distribution)
                     : fmt::format("library{}.part{}.module{}", distribution, module % 5, module);
}

packages::Inventory inventory(const Options& options, unsigned image) {
  packages::Inventory inventory;
  inventory.image = bench_image(image);
  for (unsigned i = 0; i < options.distributions + options.unused; ++i) {
    packages::Distribution entry;
    entry.name = entry.normalized = fmt::format("library{}", i);
    entry.version = "1.0";
    entry.bytes = 1'000'000 + i;
    entry.imports = {module_name(i, 0)};
    inventory.modules[module_name(i, 0)] = {i};
    inventory.path_owners[fmt::format("usr/lib/python3/dist-packages/library{}/", i)] = {i};
    inventory.distributions.push_back(std::move(entry));
  }
  return inventory;
}

// Few libraries are used by nearly all sessions and most by few: the k-th with a probability of about 1/k.
unsigned pick_distribution(std::mt19937_64& random, unsigned distributions) {
  const double at = std::uniform_real_distribution<double>(0, std::log(double(distributions)))(random);
  return std::min(distributions - 1, unsigned(std::exp(at)) - 1);
}

void write_spools(const Options& options) {
  std::filesystem::create_directories(options.spool);
  std::mt19937_64 random(1);
  const auto sessions = options.events / options.events_per_session;
  for (std::uint64_t session = 0; session < sessions; ++session) {
    StartRecord start;
    start.session = fmt::format("{:032x}", session + 1);
    start.process = fmt::format("{:016x}", 1);
    start.day = 20'000 + std::int32_t(session * 30 / sessions);
    start.image = bench_image(unsigned(session % 2));
    start.writer = "recorder 1";
    start.main = "kernel";
    start.user = digest_of(fmt::format("user {}", random() % 3000)).hex().substr(0, 32);
    std::string content = spool_line({.at_seconds = 0, .what = start});
    unsigned written = 0;
    unsigned by = 0;
    while (written < options.events_per_session) {
      const auto distribution = pick_distribution(random, options.distributions);
      const auto modules = 1 + unsigned(random() % options.modules_per_distribution);
      for (unsigned module = 0; module < modules && written < options.events_per_session; ++module, ++written) {
        ImportRecord import{.module = module_name(distribution, module),
                            .how = module == 0 ? Directness::kDirect : Directness::kTransitive,
                            .by = {},
                            .copy = Copy::kImage,
                            .distribution = {},
                            .version = {}};
        if (module > 0) import.by = module_name(by, 0);
        content += spool_line({.at_seconds = 10 * (written / 100), .what = std::move(import)});
      }
      by = distribution;
    }
    content += spool_line({.at_seconds = 3600, .what = EndRecord{.ok = true}});
    std::ofstream(options.spool / fmt::format("{}-{}.jsonl", start.session, start.process), std::ios::binary)
        << content;
  }
}

void bench_collect(const Options& options) {
  std::cout << "writing spools of " << options.events << " import events\n";
  write_spools(options);
  std::uint64_t lines = 0, bytes = 0;
  const Clock parsing;
  for (const auto& entry : std::filesystem::directory_iterator(options.spool)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line); ++lines) {
      parse_spool_line(line);
      bytes += line.size() + 1;
    }
  }
  std::cout << fmt::format("parse alone: {} records, {} bytes in {:.1f} s, {:.0f} records/s\n", lines, bytes,
                           parsing.seconds(), double(lines) / parsing.seconds());
  const auto database = open_database(options.db);
  database->put_inventory(inventory(options, 0), "v1");
  database->put_inventory(inventory(options, 1), "v2");
  const CancelFlag cancel;
  for (const auto* what : {"collect", "collect again"}) {
    const Clock clock;
    const auto result = database->collect({options.spool}, {}, cancel);
    std::cout << fmt::format("{}: {} sessions, {} events, {} duplicates in {:.1f} s, {:.0f} events/s\n", what,
                             result.sessions, result.events, result.duplicates, clock.seconds(),
                             double(result.events) / clock.seconds());
  }
  const Clock clock;
  const auto snapshot = database->snapshot({.window = {.first = 0, .last = 40'000}, .image = std::nullopt});
  std::cout << fmt::format("snapshot: {} distributions in {:.2f} s\n", snapshot.distributions.size(), clock.seconds());
  for (const std::uint64_t at_most : {1'000U, 5'000U}) {
    const Clock reading;
    std::uint64_t uses = 0;
    const auto sample = database->sessions({.window = {.first = 0, .last = 40'000}, .image = std::nullopt}, at_most,
                                           [&](SessionUse&& session) { uses += session.distributions.size(); });
    std::cout << fmt::format("sessions one by one: {} of {}, {} uses in {:.2f} s\n", sample.given, sample.kept, uses,
                             reading.seconds());
  }
}

// The daily tables as a year of such sessions leaves them: too many to be collected one by one for a benchmark of the
// report.
void write_days(const Options& options, SqlConnection& sql, std::int32_t first) {
  Writer writer(sql);
  std::mt19937_64 random(2);
  for (std::int32_t day = first; day < first + options.days; ++day) {
    writer.begin();
    if (sql.is_server()) make_partitions(sql, month_of(day));
    std::vector<SqlValue> sessions, uses, modules, edges;
    for (const unsigned image : {0U, 1U}) {
      const std::int64_t image_id = writer.image_id(bench_image(image).to_string());
      const std::int64_t heard = options.sessions_per_day / 2, none = 0;
      sessions.insert(sessions.end(), {day, image_id, heard, heard, heard / 3, heard / 4, none, none, none, none});
      for (unsigned i = 0; i < options.distributions; ++i) {
        const auto used = std::max<std::int64_t>(heard / (i + 1), std::int64_t(random() % 2));
        if (used == 0) continue;
        const auto id = writer.distributions().id_of(fmt::format("library{}", i));
        uses.insert(uses.end(), {day, image_id, id, used, used / 2, used / 3, none, used, none, used, none, none});
        for (unsigned part = 0; part < 4; ++part)
          modules.insert(
              modules.end(),
              {day, image_id, id,
               writer.modules().id_of(part == 0 ? module_name(i, 0) : fmt::format("library{}.part{}", i, part)), used});
        for (unsigned importer = 0; importer < 3; ++importer)
          edges.insert(
              edges.end(),
              {day, image_id,
               writer.distributions().id_of(fmt::format("library{}", (i * 7 + importer * 31) % options.distributions)),
               id, used});
      }
    }
    run_rows(sql,
             "INSERT INTO daily_session (day, image_id, launched, heard, gpu, gpu_used, gpu_unused_seconds, "
             "gpu_idle_seconds, gpu_incapable, gpu_incapable_seconds) VALUES",
             10, "", sessions);
    run_rows(sql, "INSERT INTO daily_use VALUES", 12, "", uses);
    run_rows(sql, "INSERT INTO daily_module VALUES", 5, "ON CONFLICT DO NOTHING", modules);
    run_rows(sql, "INSERT INTO daily_edge VALUES", 5, "ON CONFLICT DO NOTHING", edges);
    writer.commit();
  }
  writer.begin();
  for (std::int32_t month = month_of(first); month <= month_of(first + options.days - 1); ++month) {
    std::vector<SqlValue> rows;
    for (const unsigned image : {0U, 1U})
      for (unsigned i = 0; i < options.distributions; ++i) {
        UserSketch sketch;
        for (unsigned user = 0; user < 20'000 / (i + 1); ++user) sketch.add(random());
        rows.insert(rows.end(),
                    {SqlValue(std::int64_t(month)), SqlValue(writer.image_id(bench_image(image).to_string())),
                     SqlValue(std::int64_t(SketchKind::kDistribution)),
                     SqlValue(writer.distributions().id_of(fmt::format("library{}", i))), SqlValue(sketch.bytes())});
      }
    run_rows(sql, "INSERT INTO user_sketch (month, image_id, kind, subject_id, sketch) VALUES", 5,
             "ON CONFLICT (month, image_id, kind, subject_id) DO UPDATE SET sketch = excluded.sketch", rows);
  }
  count_sketched_users(sql);
  writer.commit();
}

void bench_report(const Options& options) {
  const auto database = open_database(options.db);
  database->put_inventory(inventory(options, 0), "v1");
  database->put_inventory(inventory(options, 1), "v2");
  std::int32_t first = 20'000;
  {
    const Clock clock;
    const auto sql = open_sql(options.db, usage_kind());
    // On a server each of its months has partitions, as they have after a year.
    if (sql->is_server()) first = first_day_of_month(month_of(today_utc()) + 1);
    write_days(options, *sql, first);
    std::cout << fmt::format("{} days of {} sessions written in {:.1f} s\n", options.days, options.sessions_per_day,
                             clock.seconds());
  }
  const auto last = first + options.days - 1;
  const SnapshotQuery year{.window = {.first = first, .last = last}, .image = std::nullopt};
  const SnapshotQuery one_image{.window = year.window, .image = bench_image(1)};
  const SnapshotQuery quarter{.window = {.first = last - 89, .last = last}, .image = std::nullopt};
  const auto read = [&](const char* from) {
    for (const auto& [what, query] : {std::pair("the whole window", year),
                                      {"the whole window, one image", one_image},
                                      {"its last 90 days", quarter}}) {
      double best = 1e9;
      std::size_t distributions = 0;
      for (unsigned round = 0; round < 3; ++round) {
        const Clock clock;
        distributions = database->snapshot(query).distributions.size();
        best = std::min(best, clock.seconds());
      }
      std::cout << fmt::format("snapshot from {} over {}: {} distributions in {:.2f} s (best of 3)\n", from, what,
                               distributions, best);
    }
  };
  read("days");
  for (const auto* what : {"months", "nothing new"}) {
    const Clock clock;
    const auto aged = database->age_out({}, last);
    std::cout << fmt::format("age, {}: {} months summed in {:.2f} s\n", what, aged.months_summed, clock.seconds());
  }
  read("months");
  std::vector<std::string> rare;
  for (unsigned i = options.distributions / 2; i < options.distributions; ++i)
    rare.push_back(fmt::format("library{}", i));
  {
    const Clock clock;
    const auto use = database->set_use(one_image, rare);
    std::cout << fmt::format(
        "users of {} distributions over the whole window: {} to {} of {} to {} sessions in {:.2f} s\n", rare.size(),
        use.users.at_least, use.users.at_most, use.sessions_at_least, use.sessions_at_most, clock.seconds());
  }
  const Clock clock;
  const auto explained = database->explain("library5", year);
  std::cout << fmt::format("explain: {} pieces of evidence in {:.2f} s\n", explained.evidence.size(), clock.seconds());
}

}  // namespace
}  // namespace varve::usage

int main(int argc, char** argv) try {
  using namespace varve::usage;
  Options options;
  CLI::App app("The usage database under load");
  app.require_subcommand(1);
  app.fallthrough();  // subcommands take it over when they are made
  app.add_option("--db", options.db, "A new database: a path or postgresql://...");
  app.add_option("--spool", options.spool, "Where the spools are written");
  app.add_option("--events", options.events, "Import events to collect");
  app.add_option("--events-per-session", options.events_per_session, "Of one session");
  app.add_option("--days", options.days, "Days to report on");
  app.add_option("--sessions-per-day", options.sessions_per_day, "Sessions on each of them");
  auto* collect = app.add_subcommand("collect", "Writes spools and collects them");
  app.add_subcommand("report", "Writes the daily counts of a fleet and reads them");
  CLI11_PARSE(app, argc, argv);
  collect->parsed() ? bench_collect(options) : bench_report(options);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
