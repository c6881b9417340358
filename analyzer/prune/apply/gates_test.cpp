#include "analyzer/prune/apply/gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/prune/apply/archive.h"
#include "analyzer/prune/apply/import_session.h"
#include "analyzer/prune/apply/proof.h"
#include "analyzer/prune/apply/written_image.h"
#include "core/oci/reference.h"
#include "core/trust/tool_version.h"
#include "testing/memory_source.h"

namespace varve::prune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

index::FlatEntry file(std::string_view content, std::string link_of = "") {
  index::FlatEntry entry;
  entry.type = FileType::kRegular;
  entry.mode = 0644;
  entry.size = content.size();
  if (!content.empty()) entry.content_digest = digest_of(as_bytes(content));
  entry.link_of = std::move(link_of);
  return entry;
}

index::FlatTree tree_of(std::map<std::string, index::FlatEntry> files) {
  index::FlatTree tree;
  tree.entries[""] = {};
  for (auto& [path, entry] : files) {
    for (auto slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1))
      tree.entries.try_emplace(path.substr(0, slash));
    tree.entries[path] = std::move(entry);
  }
  return tree;
}

GateResult judged(const std::function<void(GateResult&)>& judge, const std::vector<Waiver>& waivers = {}) {
  return run_gate("tree", waivers, judge);
}

GateResult compare(const index::FlatTree& before, const index::FlatTree& after, const TreeChange& change = {}) {
  return judged([&](GateResult& result) { judge_tree(before, after, change, result); });
}

TEST(RunGate, FindingsMakeAFailure) {
  EXPECT_TRUE(judged([](GateResult& result) { result.detail = "fine"; }).ok);
  const auto failed = judged([](GateResult& result) { result.findings = {"a", "b"}; });
  EXPECT_FALSE(failed.ok);
  EXPECT_FALSE(passes(failed));
}

TEST(RunGate, OneThatCouldNotRunIsAFailureThatOnlyAWaiverOfItsNameLetsPass) {
  const auto judge = [](GateResult&) { throw CouldNotRun("no daemon"); };
  const auto failed = judged(judge, {{.gate = "elf", .reason = "of another gate", .owner = ""}});
  EXPECT_FALSE(passes(failed));
  EXPECT_THAT(failed.findings, ElementsAre("could not run: no daemon"));
  const auto waived = judged(judge, {{.gate = "tree", .reason = "known", .owner = "ops"}});
  EXPECT_FALSE(waived.ok);
  EXPECT_TRUE(passes(waived));
  EXPECT_THAT(waived.detail, HasSubstr("waived by the plan: known (ops)"));
}

TEST(RunGate, CancellingGoesOn) {
  EXPECT_THROW(judged([](GateResult&) { throw Cancelled("cancelled"); }), Cancelled);
}

TEST(JudgeTree, FindsWhatIsMissingNewOrAnother) {
  const auto before = tree_of({{"a/x", file("1")}, {"a/y", file("2")}});
  EXPECT_TRUE(compare(before, before).ok);
  EXPECT_THAT(compare(before, tree_of({{"a/x", file("1")}})).findings, ElementsAre("a/y: it is not there"));
  EXPECT_THAT(compare(before, tree_of({{"a/x", file("1")}, {"a/y", file("2")}, {"b", file("")}})).findings,
              ElementsAre("b: it is new"));
  EXPECT_THAT(compare(before, tree_of({{"a/x", file("9")}, {"a/y", file("2")}})).findings,
              ElementsAre(HasSubstr("a/x: content")));
  auto other_mode = before;
  other_mode.entries["a"].mode = 0700;
  EXPECT_THAT(compare(before, other_mode).findings, ElementsAre("a: mode 0700 instead of 0755"));
}

TEST(JudgeTree, WhatWasRemovedGoesWithTheFoldersThatHeldNothingElse) {
  const auto before = tree_of({{"site/gone/deep/x", file("1")}, {"site/gone/y", file("2")}, {"site/stays", file("3")}});
  const TreeChange change{.removed = {"site/gone/deep/x", "site/gone/y"}, .added = {}};
  EXPECT_TRUE(compare(before, tree_of({{"site/stays", file("3")}}), change).ok);
  // A shell that is left would be a namespace package.
  auto shell = tree_of({{"site/stays", file("3")}});
  shell.entries["site/gone"] = {};
  EXPECT_THAT(compare(before, shell, change).findings, ElementsAre("site/gone: it was to go and is there"));
  EXPECT_THAT(compare(before, before, change).findings, Contains("site/gone/y: it was to go and is there"));
}

TEST(JudgeTree, AnEmptyFolderOfBeforeStays) {
  auto before = tree_of({{"site/gone/x", file("1")}});
  before.entries["site/gone/empty"] = {};
  const TreeChange change{.removed = {"site/gone/x"}, .added = {}};
  auto after = before;
  after.entries.erase("site/gone/x");
  EXPECT_TRUE(compare(before, after, change).ok) << compare(before, after, change).findings.front();
}

TEST(JudgeTree, AddedFilesAreThoseThatWereToBeAdded) {
  const auto before = tree_of({{"site/table", file("old")}, {"site/x", file("1")}});
  const TreeChange change{.removed = {"site/table"},
                          .added = {{.path = "site/table", .content = "new", .mode = 0644, .mtime_seconds = 5}}};
  EXPECT_TRUE(compare(before, tree_of({{"site/table", file("new")}, {"site/x", file("1")}}), change).ok);
  EXPECT_FALSE(compare(before, before, change).ok);
  EXPECT_THAT(compare(before, tree_of({{"site/x", file("1")}}), change).findings,
              ElementsAre("site/table: it should have been added"));
}

TEST(JudgeTree, AnInodeThatLosesItsFirstNameKeepsItsOthers) {
  const auto before = tree_of({{"a", file("1")}, {"b", file("1", "a")}, {"c", file("1", "a")}});
  const TreeChange change{.removed = {"a"}, .added = {}};
  EXPECT_TRUE(compare(before, tree_of({{"b", file("1")}, {"c", file("1", "b")}}), change).ok);
  EXPECT_THAT(compare(before, tree_of({{"b", file("1")}, {"c", file("1")}}), change).findings,
              ElementsAre(HasSubstr("c: a hard link of")));
}

// A source at some time, and its bytecode, which names one.
class RetimedTest : public ::testing::Test {
 protected:
  static constexpr std::string_view kSource = "site/m.py", kCode = "site/__pycache__/m.cpython-311.pyc";

  static std::string bytecode(std::uint32_t time, std::string_view code = "code", std::uint32_t flags = 0) {
    Bytes bytes;
    for (const auto word : {std::uint32_t(0x0a0d0da7), flags, time, std::uint32_t(6)}) append_le(bytes, word);
    append(bytes, as_bytes(code));
    return std::string(as_text(bytes));
  }
  static index::FlatTree at(std::int64_t time, const std::string& code, std::string_view source = "x = 1\n") {
    auto tree = tree_of({{std::string(kSource), file(source)}, {std::string(kCode), file(code)}});
    for (auto& [path, entry] : tree.entries)
      if (entry.type != FileType::kDirectory) entry.mtime_seconds = time;
    return tree;
  }
  static std::vector<std::string> findings(const index::FlatTree& before, const std::string& old_code,
                                           const index::FlatTree& after, const TimesRule& rule) {
    test::MemorySource source;
    source.add(std::string(kCode), old_code);
    return judged([&](GateResult& result) { judge_tree(before, after, {}, result, rule, &source); }).findings;
  }
  static TimesRule any_time() { return {.of_previous = {0}, .latest = {}, .latest_created = {}}; }
};

TEST_F(RetimedTest, FilesMayHaveTheTimesOfThePreviousVersionIfBytecodeNamesThem) {
  const auto before = at(2000, bytecode(2000)), after = at(1000, bytecode(1000));
  EXPECT_THAT(findings(before, bytecode(2000), after, any_time()), IsEmpty());
  EXPECT_THAT(findings(before, bytecode(2000), after, {}), Contains(HasSubstr("m.py: time")));
  // Of another layer.
  EXPECT_THAT(findings(before, bytecode(2000), after, {.of_previous = {1}, .latest = {}, .latest_created = {}}),
              Contains(HasSubstr("m.py: time")));
  const auto result = judged([&](GateResult& one) {
    test::MemorySource source;
    source.add(std::string(kCode), bytecode(2000));
    judge_tree(before, after, {}, one, any_time(), &source);
  });
  EXPECT_THAT(result.detail, HasSubstr("times of 2 files are the previous version's"));
  auto folder = after;
  folder.entries.at("site").mtime_seconds = 5;
  EXPECT_THAT(findings(before, bytecode(2000), folder, any_time()), ElementsAre(HasSubstr("site: time 5")));
}

TEST_F(RetimedTest, BytecodeThatDoesNotGoWithItsSourceIsFound) {
  const auto before = at(2000, bytecode(2000));
  for (const auto& code : {bytecode(2000), bytecode(1001), bytecode(1000, "Code"), bytecode(1000, "code", 1)})
    EXPECT_THAT(findings(before, bytecode(2000), at(1000, code), any_time()), ElementsAre(HasSubstr("content")));
  EXPECT_THAT(findings(before, bytecode(2000), at(1000, bytecode(1000), "x = 2\n"), any_time()),
              Contains(HasSubstr("m.py: content")));
  // It did not count, and would now.
  const auto stale = at(2000, bytecode(1000));
  EXPECT_THAT(findings(stale, bytecode(1000), at(1000, bytecode(1000)), any_time()),
              ElementsAre(HasSubstr("did not take it before")));
  EXPECT_THAT(findings(stale, bytecode(1000), at(1500, bytecode(1000)), any_time()), IsEmpty());
  // By hash, no time matters, and nothing of it may change.
  const auto hashed = at(2000, bytecode(7, "code", 3));
  EXPECT_THAT(findings(hashed, bytecode(7, "code", 3), at(1000, bytecode(7, "code", 3)), any_time()), IsEmpty());
  EXPECT_THAT(findings(hashed, bytecode(7, "code", 3), at(1000, bytecode(8, "code", 3)), any_time()),
              ElementsAre(HasSubstr("content")));
}

TEST_F(RetimedTest, LateTimesMayBeSetBackToTheOneThatWasSaid) {
  const auto before = at(2000, bytecode(2000));
  const TimesRule rule{.of_previous = {}, .latest = 1500, .latest_created = {}};
  EXPECT_THAT(findings(before, bytecode(2000), at(1500, bytecode(1500)), rule), IsEmpty());
  EXPECT_THAT(findings(before, bytecode(2000), before, rule), IsEmpty());  // of a layer that was kept as it is
  EXPECT_THAT(findings(before, bytecode(2000), at(1400, bytecode(1400)), rule), Contains(HasSubstr("m.py: time")));
  EXPECT_THAT(findings(at(1400, bytecode(1400)), bytecode(1400), at(1500, bytecode(1500)), rule),
              Contains(HasSubstr("m.py: time")));
}

TEST(JudgeCuda, CreatedMayBeSetBackAndNothingElseOfTheConfigMayDiffer) {
  const auto manifest = [](const std::string& created, const std::string& os) {
    cuda::Manifest one;
    one.config = {{"created", "\"" + created + "\""}, {"os", os}};
    one.config_digest = cuda::config_digest(one.config);
    return one;
  };
  const auto before = manifest("2026-01-02T03:04:05Z", "\"linux\"");
  const auto findings = [&](const cuda::Manifest& after, std::int64_t latest) {
    return judged([&](GateResult& result) {
             judge_cuda(before, after, result, {.of_previous = {}, .latest = {}, .latest_created = latest});
           })
        .findings;
  };
  EXPECT_THAT(findings(manifest("2023-11-14T22:13:20Z", "\"linux\""), 1'700'000'000), IsEmpty());
  EXPECT_THAT(findings(manifest("2023-11-14T22:13:21Z", "\"linux\""), 1'700'000'000), ::testing::SizeIs(1));
  EXPECT_THAT(findings(manifest("2023-11-14T22:13:20Z", "\"plan9\""), 1'700'000'000), ::testing::SizeIs(1));
  EXPECT_THAT(findings(before, 1'900'000'000), IsEmpty());
}

TEST(WriteSettings, TimesAreToldInTheProofAndReadBack) {
  WriteSettings settings;
  settings.times = {.of_previous = true, .latest = 5, .latest_created = 1'700'000'000};
  Proof proof;
  proof.tool = trust::this_tool();
  proof.written = describe(settings);
  const auto read = settings_of(proof, {}, nullptr).times;
  EXPECT_TRUE(read.of_previous);
  EXPECT_EQ(read.latest, 5);
  EXPECT_EQ(read.latest_created, 1'700'000'000);
  for (const auto* time : {"-1", "", "5x", "253402300800"}) {
    proof.written["latest_time"] = time;
    EXPECT_THROW(settings_of(proof, {}, nullptr), CouldNotRun) << time;
  }
  proof.written = describe({});
  EXPECT_FALSE(settings_of(proof, {}, nullptr).times.of_previous);
  proof.written["times"] = "other";
  EXPECT_THROW(settings_of(proof, {}, nullptr), CouldNotRun);
}

TEST(ArchivedTable, IsReadAsItWasWritten) {
  const std::vector<ArchivedModule> modules{{"bs4", "beautifulsoup4", "4.12.3", "lab:v1@sha256:1"},
                                            {"google.cloud.x", "google-cloud-x", "1", "lab"}};
  EXPECT_EQ(parse_archived_table(archived_table(modules)), modules);
  EXPECT_THAT(parse_archived_table("# soup\ta\tb\tc\n\none\ttwo\n\ta\tb\tc\n"), IsEmpty());
  // A name that would be a line of its own stays within its field.
  EXPECT_EQ(parse_archived_table(archived_table({{"a", "b\nc\td", "1", "i"}})),
            (std::vector<ArchivedModule>{{"a", "b c d", "1", "i"}}));
}

TEST(ArchivedTable, TellsWhereTheOldImageIsAsItCanBeTyped) {
  Plan plan;
  plan.image = digest_of(as_bytes("image"));
  const auto named = [&](const std::string& reference) {
    plan.reference = reference;
    const auto name = image_name_of(plan);
    EXPECT_THAT(name, ::testing::EndsWith("@" + plan.image.to_string()));
    EXPECT_EQ(oci::Reference::parse(name).digest, plan.image);
    EXPECT_EQ(oci::Reference::parse(name).repository_name(), oci::Reference::parse(reference).repository_name());
    return name.substr(0, name.find('@'));
  };
  EXPECT_EQ(named("oci:/home/me/images/lab:v1"), "oci:/home/me/images/lab:v1");
  EXPECT_EQ(named("docker://registry.example:5000/team/lab:v1"), "registry.example:5000/team/lab:v1");
  EXPECT_EQ(named("registry.example/team/lab@sha256:" + std::string(64, 'a')), "registry.example/team/lab");
}

const std::vector<ImportTask> kTasks{{.names = {"a", "b"}}, {.names = {"c"}, .archived = true}};

TEST(ImportOutcomes, AreTakenInAnyOrderOfTasks) {
  const auto outcomes = parse_import_outcomes(R"({"task":1,"name":"c","outcome":"archived","detail":"","missed":["c"]}
{"task":0,"name":"a","outcome":"ok","detail":"","missed":[]}
{"task":0,"name":"b","outcome":"signal 11","detail":"","missed":[]}
{"done":true}
)",
                                              kTasks);
  EXPECT_EQ(outcomes[0][1].outcome, "signal 11");
  EXPECT_THAT(outcomes[1][0].missed, ElementsAre("c"));
}

TEST(ImportOutcomes, OfAProgramThatDidNotDoItsWorkAreRefused) {
  for (const char* text :
       {"", "{\"done\":true}", "hello\n{\"done\":true}",
        R"({"task":0,"name":"a","outcome":"ok","detail":"","missed":[]})",
        R"({"task":2,"name":"a","outcome":"ok","detail":""})", R"({"task":0,"name":"b","outcome":"ok","detail":""})",
        R"({"task":-1,"name":"a","outcome":"ok","detail":""})", R"({"task":0,"name":"a","outcome":7,"detail":""})",
        "{\"done\":true}\n{\"done\":true}"})
    EXPECT_THROW(parse_import_outcomes(text, kTasks), CorruptData) << text;
}

TEST(ProofTest, IsReadAsItWasWrittenAndRefusesWhatItDoesNotKnow) {
  Proof proof;
  proof.old_image = digest_of(as_bytes("old"));
  proof.image = digest_of(as_bytes("new"));
  proof.tool = "varve 0.1.0";
  proof.written = {{"format", "gzip"}};
  proof.gates = {{.name = "tree", .ok = true, .detail = "all", .findings = {}},
                 {.name = "elf", .ok = false, .waived = true, .detail = "known", .findings = {"x"}}};
  const auto text = to_json(proof);
  const auto again = parse_proof(text, "proof");
  EXPECT_EQ(to_json(again), text);
  EXPECT_TRUE(again.gates[1].waived);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"\"format\": 1", "\"format\": 2"},
                                                                                 {"\"tool\"", "\"tol\""},
                                                                                 {"sha256:", "sha257:"},
                                                                                 {"\"ok\": true", "\"ok\": 1"}}) {
    auto broken = text;
    broken.replace(broken.find(from), from.size(), to);
    EXPECT_THROW(parse_proof(broken, "proof"), Error) << to;
  }
}

TEST(JudgeProof, WhatIsStoredIsWhatIsComputedNow) {
  cuda::Manifest before, after;
  before.image = digest_of(as_bytes("old"));
  after.image = digest_of(as_bytes("new"));
  before.files = after.files = {{.path = "usr/lib/libcudart.so.12",
                                 .type = "file",
                                 .mode = 0644,
                                 .size = 4,
                                 .sha256 = std::string(64, 'a'),
                                 .target = "",
                                 .xattrs = "",
                                 .rule = "R1"}};
  before.config_digest = after.config_digest = cuda::config_digest({});
  Proof proof;
  proof.cuda_before_text = cuda::to_json(before);
  proof.cuda_after_text = cuda::to_json(after);
  proof.gates = {{.name = "tree", .ok = true, .detail = "", .findings = {}}};
  const auto judge = [&] { return judged([&](GateResult& result) { judge_proof(proof, before, after, result); }); };
  EXPECT_TRUE(judge().ok) << judge().findings.front();
  auto bad_bit = after;
  bad_bit.files[0].sha256[0] = 'b';
  proof.cuda_after_text = cuda::to_json(bad_bit);
  EXPECT_THAT(judge().findings, ElementsAre(HasSubstr("new image: usr/lib/libcudart.so.12: sha256")));
  proof.cuda_after_text = "{";
  EXPECT_THAT(judge().detail, HasSubstr("could not run"));
  proof.cuda_after_text = cuda::to_json(after);
  proof.gates[0].ok = false;
  EXPECT_THAT(judge().findings, ElementsAre(HasSubstr("the gate tree had failed")));
}

}  // namespace
}  // namespace varve::prune
