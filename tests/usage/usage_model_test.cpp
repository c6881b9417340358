// The database against a simple model: random sessions written, collected, cut short, killed, copied, aged out in any
// order must be counted as plain maps count them.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "core/base/text/calendar.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

constexpr std::int32_t kFirstDay = 20'000;
constexpr std::int32_t kDays = 40;  // so few that no session is old enough to be forgotten altogether
constexpr unsigned kImages = 2;
constexpr unsigned kSessions = 40;

// What the truth is made of, per session; written down from the records as they are made, never read from the database.
struct ModelSession {
  unsigned image = 0;
  std::int32_t day = INT32_MAX;
  std::set<std::string> users;
  struct Use {
    bool direct = false, transitive = false, named = false, image_copy = false, session_copy = false, file = false,
         exec = false;
  };
  std::vector<ImportRecord> imports;
  std::vector<FileRecord> files;
  std::set<std::string> failed;
  std::set<std::tuple<std::string, std::string, std::string>> installs;
  bool gpu = false, gpu_used = false;
  std::uint64_t lifetime = 0;
};

struct Expected {
  std::map<std::string, std::map<std::string, std::uint64_t>> uses;  // distribution -> counter -> sessions
  std::map<std::string, std::map<std::int32_t, std::uint64_t>> days;
  std::map<std::string, std::map<std::string, std::uint64_t>> importers;
  std::map<std::string, std::uint64_t> unresolved;
  std::map<std::string, std::uint64_t> failed;
  std::map<std::string, std::set<std::string>> users;
  std::uint64_t heard = 0, gpu = 0, gpu_used = 0, unused_seconds = 0;
};

// Image 1 and 2 differ: "beta" is another distribution's in the second.
std::vector<TestPackage> packages_of(unsigned image) {
  return {{.name = "alpha", .modules = {"alpha", "space.alpha", "lone.x.y"}, .paths = {"lib/alpha/"}},
          {.name = image == 1 ? "beta" : "beta-fork", .modules = {"beta"}, .paths = {"lib/beta/"}},
          {.name = "both-a", .modules = {"both"}},
          {.name = "both-b", .modules = {"both", "space.b"}, .paths = {"bin/b"}}};
}

const std::vector<std::string> kModules{"alpha",  "alpha.core", "alpha.core.deep",   "space.alpha.x", "space.b",
                                        "space",  "beta",       "beta.io",           "lone",          "lone.x",
                                        "lone.z", "both.sub",   "unknown.thing.deep"};
const std::vector<std::string> kPaths{"lib/alpha/a.py", "lib/beta/data/x", "bin/b", "etc/other"};

class Model {
 public:
  // The owners of a module by the longest dotted prefix; the same question as the database answers, asked of a plain
  // list.
  static std::set<std::string> owners(unsigned image, const std::string& module,
                                      const std::set<unsigned>& inventories) {
    std::set<std::string> found;
    std::size_t longest = 0;
    if (!inventories.contains(image)) return found;
    if (module == "lone" || module == "lone.x") return {"alpha"};  // namespaces that only alpha lives in
    for (const auto& package : packages_of(image))
      for (const auto& own : package.modules) {
        if (module != own && !module.starts_with(own + ".")) continue;
        if (own.size() > longest) found.clear();
        if (own.size() >= longest) {
          longest = own.size();
          found.insert(package.name);
        }
      }
    return found;
  }
  static std::set<std::string> path_owners(unsigned image, const std::string& path,
                                           const std::set<unsigned>& inventories) {
    std::set<std::string> found;
    if (!inventories.contains(image)) return found;
    for (const auto& package : packages_of(image))
      for (const auto& own : package.paths)
        if (path == own || (own.back() == '/' && path.starts_with(own))) found.insert(package.name);
    return found;
  }

  Expected expect(const std::map<unsigned, ModelSession>& sessions, const std::set<unsigned>& inventories) const {
    Expected expected;
    for (const auto& [number, session] : sessions) add(session, inventories, expected);
    return expected;
  }

 private:
  static std::string two_parts(const std::string& module) {
    const auto dot = module.find('.');
    return dot == std::string::npos ? module : module.substr(0, module.find('.', dot + 1));
  }

  static void add(const ModelSession& session, const std::set<unsigned>& inventories, Expected& expected) {
    std::map<std::string, ModelSession::Use> uses;
    std::set<std::pair<std::string, std::string>> edges;
    std::set<std::string> unresolved;
    for (const auto& import : session.imports) {
      auto to = owners(session.image, import.module, inventories);
      if (!import.distribution.empty()) to = {import.distribution};
      if (to.empty()) unresolved.insert(two_parts(import.module));
      for (const auto& name : to) {
        auto& use = uses[name];
        use.direct |= import.how == Directness::kDirect;
        use.transitive |= import.how == Directness::kTransitive;
        use.named |= import.how == Directness::kStatic;
        use.image_copy |= import.copy == Copy::kImage;
        use.session_copy |= import.copy == Copy::kSession;
        for (const auto& importer : owners(session.image, import.by, inventories))
          if (importer != name) edges.emplace(name, importer);
      }
    }
    std::set<std::string> imported;
    for (const auto& [name, use] : uses) imported.insert(name);
    for (const auto& file : session.files)
      for (const auto& name : path_owners(session.image, file.path, inventories)) {
        uses[name].file = true;
        uses[name].exec |= file.executed;
      }
    for (const auto& [name, use] : uses) {
      auto& counts = expected.uses[name];
      counts["sessions"] += imported.contains(name);
      counts["direct"] += use.direct;
      counts["transitive_only"] += use.transitive && !use.direct && !use.named;
      counts["static"] += use.named;
      counts["image_copy"] += use.image_copy;
      counts["session_copy"] += use.session_copy;
      counts["file"] += use.file;
      counts["exec"] += use.exec;
      counts["files_only"] += !imported.contains(name);
      ++expected.days[name][session.day];
      expected.users[name].insert(session.users.begin(), session.users.end());
    }
    for (const auto& [name, importer] : edges) ++expected.importers[name][importer];
    for (const auto& module : unresolved) ++expected.unresolved[module];
    for (const auto& name : session.failed) ++expected.failed[name];
    ++expected.heard;
    expected.gpu += session.gpu;
    expected.gpu_used += session.gpu && session.gpu_used;
    if (session.gpu && !session.gpu_used) expected.unused_seconds += session.lifetime;
  }
};

class UsageModel : public DatabaseFixture {
 protected:
  std::filesystem::path spool() const { return folder_.path() / "spool"; }

  unsigned pick(unsigned below) { return unsigned(random_() % below); }
  const std::string& pick(const std::vector<std::string>& from) { return from[pick(unsigned(from.size()))]; }

  // Starts a process of some session, or goes on with one.
  void write_something() {
    const unsigned number = 1 + pick(kSessions);
    const unsigned process = 1 + pick(3);
    const unsigned image = 1 + number % kImages;
    const auto day = std::int32_t(kFirstDay + number % kDays) + std::int32_t(process) - 1;
    auto start = start_record(number, process, day_text(day), image);
    if (process != 1) start.parent = process_id(1);
    if (number % 3 != 0) start.user = user_hash(number % 7);
    auto& pending = unfinished_[{number, process}];
    const bool is_new = !std::filesystem::exists(spool() / fmt::format("{}-{}.jsonl", start.session, start.process));
    SpoolWriterForTests writer(spool(), start);
    if (is_new) whole_[number].emplace_back(start, std::vector<SpoolRecord>{});
    // A line that was left half is ended first.
    if (!pending.first.empty()) {
      writer.raw(pending.first);
      remember(number, start, pending.second);
      pending.first.clear();
    }
    for (unsigned i = pick(6); i > 0; --i) {
      const auto record = some_record();
      writer.add(record);
      remember(number, start, record);
    }
    if (pick(3) == 0) {
      const auto record = some_record();
      const auto line = spool_line(record);
      const auto cut = 1 + pick(unsigned(line.size()) - 1);
      writer.raw(line.substr(0, cut));
      pending = {line.substr(cut), record};
    }
  }

  SpoolRecord some_record() {
    const auto at = std::uint64_t(pick(1000)) * 10;
    switch (pick(8)) {
      case 0:
        return {.at_seconds = at, .what = FailedRecord{.module = pick(kModules), .how = Directness::kDirect}};
      case 1:
        return {.at_seconds = at, .what = FileRecord{.path = pick(kPaths), .executed = pick(2) == 0}};
      case 2:
        return {.at_seconds = at,
                .what = GpuRecord{.present = true, .used = pick(3) == 0, .models = {"A"}, .driver = {}}};
      case 3:
        return {.at_seconds = at, .what = UnknownRecord{.kind = "later"}};
      default:
        break;
    }
    ImportRecord import{.module = pick(kModules),
                        .how = Directness(pick(3)),
                        .by = {},
                        .copy = Copy(pick(3)),
                        .distribution = {},
                        .version = {}};
    if (import.how == Directness::kTransitive) import.by = pick(kModules);
    if (import.copy == Copy::kSession && pick(2) == 0) import.distribution = "own-thing";
    return {.at_seconds = at, .what = std::move(import)};
  }

  void remember(unsigned number, const StartRecord& start, const SpoolRecord& record) {
    for (auto& [known, records] : whole_[number])
      if (known.process == start.process) records.push_back(record);
  }

  // What collect() has seen so far becomes the truth.
  void remember_collected() {
    for (const auto& [number, processes] : whole_) {
      ModelSession session;
      session.image = 1 + number % kImages;
      for (const auto& [start, records] : processes) {
        session.day = std::min(session.day, start.day);
        if (!start.user.empty()) session.users.insert(start.user);
        for (const auto& record : records) take(record, session);
      }
      if (!gone_.contains(number)) truth_[number] = session;
    }
  }

  static void take(const SpoolRecord& record, ModelSession& session) {
    // What a newer writer means by a kind of its own is not known.
    if (!std::holds_alternative<UnknownRecord>(record.what))
      session.lifetime = std::max(session.lifetime, record.at_seconds);
    if (const auto* import = std::get_if<ImportRecord>(&record.what)) session.imports.push_back(*import);
    if (const auto* file = std::get_if<FileRecord>(&record.what)) session.files.push_back(*file);
    if (const auto* failed = std::get_if<FailedRecord>(&record.what)) session.failed.insert(failed->module);
    if (const auto* gpu = std::get_if<GpuRecord>(&record.what)) {
      session.gpu = true;
      session.gpu_used |= gpu->used;
    }
  }

  void put_some_inventory() {
    const unsigned image = 1 + pick(kImages);
    // Sessions that were aged out stay counted as they were: what their names mean is fixed.
    if (!gone_.empty()) return;
    database_->put_inventory(inventory_of(image, packages_of(image)), "");
    inventories_.insert(image);
  }

  void age_some() {
    const auto today = kFirstDay + std::int32_t(pick(kDays));
    database_->age_out({.raw_days = 10, .aggregate_days = 10'000}, today);
    for (const auto& [number, session] : truth_)
      if (session.day < today - 10) gone_.insert(number);
  }

  void collect(bool copies) {
    auto folder = spool();
    if (copies) {
      folder = folder_.path() / "copies";
      std::filesystem::remove_all(folder);
      std::filesystem::copy(spool(), folder);
    }
    database_->collect({folder}, {.known_name_sessions = 1}, cancel_);
    remember_collected();
  }

  void compare() {
    const auto expected = Model().expect(truth_, inventories_);
    const auto facts = database_->snapshot({.window = all_days(), .image = std::nullopt});
    std::uint64_t heard = 0, gpu = 0, gpu_used = 0, unused_seconds = 0;
    for (const auto& image : facts.images) {
      heard += image.heard;
      gpu += image.gpu_sessions;
      gpu_used += image.gpu_used_sessions;
      unused_seconds += image.gpu_unused_seconds;
    }
    ASSERT_EQ(heard, expected.heard);
    ASSERT_EQ(gpu, expected.gpu);
    ASSERT_EQ(gpu_used, expected.gpu_used);
    ASSERT_EQ(unused_seconds, expected.unused_seconds);
    std::map<std::string, std::uint64_t> failed;
    for (const auto& entry : facts.failed) failed[entry.module] = entry.sessions;
    ASSERT_EQ(failed, expected.failed);
    ASSERT_EQ(facts.unresolved, expected.unresolved);
    for (const auto& [name, counts] : expected.uses) ASSERT_NE(find_use(facts, name), nullptr) << name;
    for (const auto& use : facts.distributions) compare_use(use, expected);
    ASSERT_NO_FATAL_FAILURE(compare_sets());
  }

  // Sessions that are kept one by one, each with its own set; and how many use at least one of some distributions.
  void compare_sets() {
    std::map<std::uint64_t, std::vector<std::string>> expected;
    std::map<unsigned, std::set<std::string>> touched;
    for (const auto& [number, session] : truth_) {
      const auto of_session = Model().expect({{number, session}}, inventories_);
      for (const auto& [name, counts] : of_session.uses) touched[number].insert(name);
      if (!gone_.contains(number)) expected[number] = {touched[number].begin(), touched[number].end()};
    }
    std::map<std::uint64_t, std::vector<std::string>> found;
    database_->sessions({.window = all_days(), .image = std::nullopt}, 1'000'000,
                        [&](SessionUse&& session) { found[found.size()] = std::move(session.distributions); });
    ASSERT_EQ(found.size(), expected.size());
    auto at = found.begin();
    for (const auto& [number, distributions] : expected)
      ASSERT_EQ((at++)->second, distributions) << number;  // keys of these tests ascend with their numbers
    const std::vector<std::string> some{"alpha", "both-a", "beta-fork"};
    std::uint64_t sessions = 0;
    std::set<std::string> users;
    for (const auto& [number, session] : truth_) {
      if (std::none_of(some.begin(), some.end(), [&](const auto& name) { return touched[number].contains(name); }))
        continue;
      ++sessions;
      users.insert(session.users.begin(), session.users.end());
    }
    const auto use = database_->set_use({.window = all_days(), .image = std::nullopt}, some);
    ASSERT_LE(use.sessions_at_least, sessions);
    ASSERT_GE(use.sessions_at_most, sessions);
    ASSERT_LE(use.users.at_least, std::max<std::uint64_t>(users.size(), sessions > 0 ? 1 : 0));
    ASSERT_GE(use.users.at_most, std::min<std::uint64_t>(users.size(), use.sessions_at_most));
  }

  void compare_use(const DistributionUse& use, const Expected& expected) {
    SCOPED_TRACE(use.name);
    const auto found = expected.uses.find(use.name);
    if (found == expected.uses.end()) {
      ASSERT_EQ(use.sessions + use.file_sessions, 0U);
      return;
    }
    auto counts = found->second;
    ASSERT_EQ(use.sessions, counts["sessions"]);
    ASSERT_EQ(use.direct, counts["direct"]);
    ASSERT_EQ(use.transitive_only, counts["transitive_only"]);
    ASSERT_EQ(use.static_sessions, counts["static"]);
    ASSERT_EQ(use.image_copy, counts["image_copy"]);
    ASSERT_EQ(use.session_copy, counts["session_copy"]);
    ASSERT_EQ(use.file_sessions, counts["file"]);
    ASSERT_EQ(use.files_only, counts["files_only"]);
    ASSERT_EQ(use.exec_sessions, counts["exec"]);
    std::map<std::int32_t, std::uint64_t> days;
    for (const auto& of_day : use.days) days[of_day.day] = of_day.sessions;
    const auto expected_days = expected.days.find(use.name);
    ASSERT_EQ(days, expected_days == expected.days.end() ? decltype(days)() : expected_days->second);
    const auto importers = expected.importers.find(use.name);
    ASSERT_EQ(use.importers, importers == expected.importers.end() ? decltype(use.importers)() : importers->second);
    // Users are known by month; over all months there are at least as many as in the best and at most as many as in
    // all.
    const auto users = expected.users.find(use.name)->second.size();
    ASSERT_LE(use.users.at_least, std::max<std::uint64_t>(users, 1));
    if (users > 0) {
      ASSERT_GE(use.users.at_most, std::min<std::uint64_t>(users, use.sessions + use.file_sessions));
    }
  }

  std::mt19937 random_;
  std::map<unsigned, std::vector<std::pair<StartRecord, std::vector<SpoolRecord>>>> whole_;
  std::map<std::pair<unsigned, unsigned>, std::pair<std::string, SpoolRecord>> unfinished_;
  std::map<unsigned, ModelSession> truth_;
  std::set<unsigned> gone_, inventories_;
};
VARVE_FOR_BOTH_DATABASES(UsageModel);

TEST_P(UsageModel, AgreesOnEveryCount) {
  const unsigned rounds = GetParam() == Kind::kSqlite ? 8 : 2;
  for (unsigned seed = 0; seed < rounds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SetUp();  // a database of its own
    random_.seed(seed);
    std::filesystem::remove_all(spool());
    whole_.clear();
    unfinished_.clear();
    truth_.clear();
    gone_.clear();
    inventories_.clear();
    for (unsigned step = 0; step < 60; ++step) {
      for (unsigned i = pick(6); i > 0; --i) write_something();
      if (!std::filesystem::exists(spool())) continue;
      switch (pick(8)) {
        case 0:
          put_some_inventory();
          break;
        case 1:
          database_ = open();
          break;
        case 2:
          if (seed % 2 == 1) age_some();
          break;
        case 3:
          collect(true);
          break;
        default:
          collect(false);
          break;
      }
      if (step % 10 == 9) {
        ASSERT_NO_FATAL_FAILURE(compare());
      }
    }
    ASSERT_NO_FATAL_FAILURE(compare());
  }
}

}  // namespace
}  // namespace varve::usage
