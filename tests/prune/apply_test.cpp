// A plan carried out on an image of a few made-up wheels, from the evidence to the proof. Sessions are a stand-in that
// answers for each image's Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analyzer/notebooks/scan.h"
#include "analyzer/prune/apply/apply_plan.h"
#include "analyzer/prune/apply/check_image.h"
#include "analyzer/prune/plan_image.h"
#include "cli/prune/pruned_image.h"
#include "core/base/errors.h"
#include "core/oci/layout.h"
#include "indexer/index_image.h"
#include "testing/codec_support.h"
#include "testing/tar_support.h"
#include "testing/temp_dir.h"

namespace varve::prune {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kSite = "usr/local/lib/python3.11/site-packages/";
constexpr int kNotebooks = 400;

std::string site(std::string_view rest) { return std::string(kSite) + std::string(rest); }

void add_link(codec::test::TarBuilder& tar, const std::string& name, const std::string& target) {
  tar.header({.name = name, .typeflag = '2', .link_name = target, .mode = "0000777"});
}

// One module of so many bytes, with what pip leaves beside it at that time; with bytecode of it if it compiles.
void add_wheel(codec::test::TarBuilder& tar, const std::string& name, std::size_t bytes, std::uint32_t time,
               bool compiled = false) {
  const auto info = name + "-1.0.dist-info/";
  const auto source = "# " + name + "\n";
  const auto add = [&](const std::string& path, std::string_view content) {
    tar.header({.name = site(path), .size = content.size(), .mtime = fmt::format("{:011o}", time)}).data(content);
  };
  Bytes bytecode;
  for (const auto word : {std::uint32_t(0x0a0d0da7), std::uint32_t(0), time, std::uint32_t(source.size())})
    append_le(bytecode, word);
  append(bytecode, as_bytes(name));
  add(name + "/__init__.py", source);
  if (compiled) add(name + "/__pycache__/__init__.cpython-311.pyc", as_text(bytecode));
  add(name + "/data.bin", as_text(codec::test::program_like_bytes(bytes, std::uint32_t(name.size()))));
  add(info + "METADATA", fmt::format("Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n", name));
  add(info + "RECORD", fmt::format("{0}/__init__.py,,\n{0}/data.bin,,\n{1}METADATA,,\n{1}RECORD,,\n", name, info));
}

Bytes base_layer() {
  codec::test::TarBuilder tar;
  tar.file("usr/local/bin/python3.11", "the interpreter");
  add_link(tar, "usr/local/bin/python3", "python3.11");
  tar.file("usr/local/lib/python3.11/os.py", "#");
  tar.file("usr/local/include/python3.11/patchlevel.h", "#define PY_VERSION \"3.11.9\"\n");
  return to_bytes(tar.end().bytes());
}

Bytes wheels_layer(std::uint32_t time) {
  codec::test::TarBuilder tar;
  add_wheel(tar, "lab", 200'000, time, true);
  add_wheel(tar, "plots", 200'000, time);
  add_wheel(tar, "soup", 300'000, time);
  add_wheel(tar, "taste", 3'000'000, time);
  return to_bytes(tar.end().bytes());
}

// Answers as python/import_names.py does.
class FakeSessions final : public SessionRunner {
 public:
  ProgramResult run(const Digest& image, const std::vector<std::string>& command, std::string_view standard_input,
                    std::chrono::seconds) override {
    EXPECT_EQ(command.front(), "/usr/local/bin/python3.11");
    if (on_run) on_run();
    const std::lock_guard lock(mutex_);  // of several at once
    ProgramResult result;
    const auto orders = json::parse(standard_input);
    for (std::size_t task = 0; task < orders["tasks"].size(); ++task) {
      if (image == old_image) ++imported_before[orders["tasks"][task]["names"].get<std::vector<std::string>>()];
      for (const auto& name : orders["tasks"][task]["names"]) {
        const bool archived = orders["tasks"][task].value("archived", false);
        const bool fails = image != old_image && broken.contains(name.get<std::string>());
        result.out += json{{"task", task},
                           {"name", name},
                           {"outcome", fails      ? "ImportError"
                                       : archived ? "archived"
                                                  : "ok"},
                           {"detail", fails ? "it broke" : ""},
                           {"missed", json::array()}}
                          .dump() +
                      "\n";
      }
    }
    result.out += "{\"done\": true}\n";
    return result;
  }

  Digest old_image;
  std::set<std::string> broken;  // in any other image
  std::function<void()> on_run;
  std::map<std::vector<std::string>, int> imported_before;  // in the old image: names of a process, how often

 private:
  std::mutex mutex_;
};

class ApplyTest : public ::testing::Test {
 protected:
  ApplyTest() {
    context_.global.root = dir_ / "state";
    context_.global.quiet = true;
    build(1'700'000'000);
  }

  // The image as it is built at that time, indexed and planned.
  void build(std::uint32_t time) {
    put_image(time);
    Progress progress;
    auto local = context_.local_index();
    indexer::index_image(old_, *layout_, local, {}, {progress, cancel_});
    before_.reset();
    opened_ = std::make_unique<index::OpenedImage>(local, old_);
    before_ = std::make_unique<ImageView>(fmt::format("oci:{}:old", (dir_ / "images").string()), *opened_);
    sessions_.old_image = old_.digest();
    make_plan();
  }

  void put_image(std::uint32_t time) {
    json config{{"architecture", "amd64"},
                {"os", "linux"},
                {"config", {{"Env", {"PATH=/usr/local/bin:/usr/bin"}}}},
                {"rootfs", {{"type", "layers"}, {"diff_ids", json::array()}}}};
    json manifest{{"schemaVersion", 2}, {"mediaType", oci::kOciManifestType}, {"layers", json::array()}};
    const auto named = [](const oci::Descriptor& blob) {
      return json{{"mediaType", blob.media_type}, {"digest", blob.digest.to_string()}, {"size", blob.size}};
    };
    for (const auto& tar : {base_layer(), wheels_layer(time)}) {
      manifest["layers"].push_back(
          named(oci::put_bytes(*layout_, codec::test::gzip(tar), "application/vnd.oci.image.layer.v1.tar+gzip")));
      config["rootfs"]["diff_ids"].push_back(digest_of(tar).to_string());
    }
    manifest["config"] =
        named(oci::put_bytes(*layout_, as_bytes(config.dump()), "application/vnd.oci.image.config.v1+json"));
    layout_->put_manifest(as_bytes(manifest.dump()), oci::kOciManifestType, "old");
    old_ = oci::open_image(layout_, "old", oci::Platform::parse("linux/amd64"));
  }

  // All notebooks import lab, one plots, none the others: those go cold. Then somebody archives soup.
  void make_plan() {
    const auto folder = dir_ / "notebooks";
    std::filesystem::create_directory(folder);
    for (int number = 0; number < kNotebooks; ++number)
      std::ofstream(folder / fmt::format("{}.py", number))
          << "import lab\nnumber = " << number << (number == 0 ? "\nimport plots\n" : "\n");
    const auto database = usage::open_database((dir_ / "usage.db").string());
    database->put_inventory(before_->inventory(), "old");
    database->put_scan(notebooks::scan({folder}, {.jobs = 1, .is_distribution = {}}, cancel_));
    Thresholds thresholds;
    thresholds.basis = Basis::kNotebooks;
    const KeepRules rules;
    auto made = plan_image({.image = *before_,
                            .database = *database,
                            .rules = rules,
                            .probe = nullptr,
                            .built_in_rules = false,
                            .thresholds = thresholds,
                            .window = {.first = 20'000, .last = 20'100},
                            .today = 20'100,
                            .previous = nullptr,
                            .savings = [] { return Savings(); }},
                           {progress_, cancel_});
    plan_ = std::move(made.plan);
    replay_ = replay_sets(*database, old_.digest());
    for (auto& one : plan_.verdicts) {
      planned_[one.name] = one.verdict;
      if (one.name == "soup") one.verdict = Verdict::kArchived;
    }
    plan_text_ = to_json(plan_);
  }

  ApplyReport apply(bool rebuild = false, bool all_gates = false) { return apply("images", {}, rebuild, all_gates); }

  ApplyReport apply(const std::string& folder, const WriteSettings& settings, bool rebuild, bool all_gates) {
    return apply_plan({.before = *before_,
                       .plan = plan_,
                       .plan_text = plan_text_,
                       .destination = oci::create_layout(dir_ / folder),
                       .reference = oci::Reference::parse(fmt::format("oci:{}:new", (dir_ / folder).string())),
                       .settings = settings,
                       .replay = replay_,
                       .imports = {},
                       .pins = [](GateResult& result) { result.detail = "none"; },
                       .rebuild = rebuild,
                       .all_gates = all_gates},
                      tools_, [this](const GateResult& gate) { heard_.push_back(gate.name); });
  }

  CheckReport check(const oci::Image& image, std::shared_ptr<oci::Image> previous) {
    const index::OpenedImage opened(opened_->local(), image);
    const ImageView after("new", opened);
    return check_image({.before = *before_,
                        .after = after,
                        .plan = std::nullopt,
                        .plan_name = "",
                        .replay = std::nullopt,
                        .imports = {},
                        .pins = [](GateResult&) {},
                        .rebuild = true,
                        .previous = std::move(previous)},
                       tools_, [](const GateResult&) {});
  }

  bool is_there(const std::string& tag) const {
    try {
      layout_->manifest(tag);
      return true;
    } catch (const NotFound&) {
      return false;
    }
  }

  static std::set<std::string> failed(const std::vector<GateResult>& gates) {
    std::set<std::string> names;
    for (const auto& gate : gates)
      if (!gate.ok) names.insert(gate.name);
    return names;
  }

  const test::TempDir dir_;
  std::ostringstream out_, err_;
  cli::Context context_{
      .out = out_, .err = err_, .global = {}, .cancel = {}, .exit_status = 0, .program = {}, .tail = {}};
  CancelFlag& cancel_ = context_.cancel;
  Progress progress_;
  std::shared_ptr<oci::Repository> layout_ = oci::create_layout(dir_ / "images");
  oci::Image old_;
  std::unique_ptr<index::OpenedImage> opened_;
  std::unique_ptr<ImageView> before_;
  Plan plan_;
  std::string plan_text_;
  std::map<std::string, Verdict> planned_;
  ImportSets replay_;
  std::vector<std::string> heard_;
  FakeSessions sessions_;
  cli::PrunedImageWriter writer_{context_};
  const ApplyTools tools_{.writer = writer_, .sessions = sessions_, .scratch = dir_ / "tmp", .cancel = cancel_};
};

TEST_F(ApplyTest, ThePlanRestsOnTheEvidence) {
  EXPECT_EQ(planned_.at("lab"), Verdict::kHot);
  EXPECT_NE(planned_.at("plots"), Verdict::kCold);
  EXPECT_EQ(planned_.at("soup"), Verdict::kCold);
  EXPECT_EQ(planned_.at("taste"), Verdict::kCold);
  EXPECT_EQ(plan_.forecast.basis, "notebooks");
}

TEST_F(ApplyTest, AnImageThatPassesGetsItsTagItsMarksAndItsProof) {
  const auto report = apply(true);
  ASSERT_TRUE(report.published) << testing::PrintToString(failed(report.gates));
  EXPECT_EQ(heard_.size(), report.gates.size());
  const auto image = oci::open_image(layout_, "new", old_.config.platform);
  EXPECT_EQ(image.digest(), report.written.image);

  const index::OpenedImage opened(opened_->local(), image);
  const auto& entries = opened.tree().entries;
  for (const auto* gone : {"soup/__init__.py", "soup/data.bin", "soup", "soup-1.0.dist-info/METADATA"})
    EXPECT_FALSE(entries.contains(site(gone))) << gone;
  for (const auto* there : {"lab/data.bin", "taste/data.bin", "varve_archived.txt", "varve_archived.py"})
    EXPECT_TRUE(entries.contains(site(there))) << there;

  // Cold: taste without its metadata, and nothing else.
  EXPECT_EQ(report.cold.files, 2U);
  EXPECT_EQ(opened.index().blobs.manifest.digest, report.index);
  const auto is_cold = [&](std::string_view name) {
    const auto& run = entries.at(site(name)).runs.at(0);
    const auto& ranges = opened.index().cold.of(image.manifest.layers.at(run.layer).digest);
    const auto middle = run.run.stream_offset + run.run.length / 2;
    return std::ranges::any_of(
        ranges, [&](const ByteRange& range) { return range.offset <= middle && middle < range.offset + range.length; });
  };
  EXPECT_TRUE(is_cold("taste/data.bin"));
  EXPECT_FALSE(is_cold("lab/data.bin"));

  const auto proof = find_proof(image, old_.digest());
  ASSERT_TRUE(proof);
  EXPECT_EQ(proof->plan_text, plan_text_);
  EXPECT_EQ(proof->gates.size(), report.gates.size());
  EXPECT_TRUE(all_pass(proof->gates));

  // And years later, by the proof alone.
  const auto checked = check(image, nullptr);
  EXPECT_TRUE(all_pass(checked.gates)) << testing::PrintToString(failed(checked.gates));
  EXPECT_EQ(checked.archived, 1U);
}

TEST_F(ApplyTest, OneThatReusesLayersOfAVersionElsewhereIsWrittenAgainByWhoIsToldWhere) {
  // The version before has what this one archives.
  const auto plan = plan_;
  std::ranges::find(plan_.verdicts, "soup", &PlannedDistribution::name)->verdict = Verdict::kCold;
  plan_text_ = to_json(plan_);
  ASSERT_TRUE(apply().published);
  plan_ = plan;
  plan_text_ = to_json(plan_);
  const auto previous = std::make_shared<oci::Image>(oci::open_image(layout_, "new", old_.config.platform));
  WriteSettings settings;
  settings.previous = previous;
  ASSERT_TRUE(apply("elsewhere", settings, false, false).published);
  const auto image = oci::open_image(oci::create_layout(dir_ / "elsewhere"), "new", old_.config.platform);
  const auto blind = check(image, nullptr).gates;
  EXPECT_EQ(failed(blind), std::set<std::string>{"rebuild"});
  EXPECT_THAT(std::ranges::find(blind, "rebuild", &GateResult::name)->detail, HasSubstr("--previous"));
  const auto told = check(image, previous).gates;
  EXPECT_TRUE(all_pass(told)) << testing::PrintToString(failed(told));
}

TEST_F(ApplyTest, ARebuildTakesTheLayersOfTheVersionBeforeAndTheGatesKnowWhoseTimesItHas) {
  ASSERT_TRUE(apply().published);
  WriteSettings settings;
  settings.previous = std::make_shared<oci::Image>(oci::open_image(layout_, "new", old_.config.platform));
  settings.times.of_previous = true;
  build(1'700'000'600);
  const auto report = apply("rebuilt", settings, true, false);
  ASSERT_TRUE(report.published) << testing::PrintToString(failed(report.gates));
  EXPECT_GT(writer_.report().reused_bytes, 5 * report.written.new_bytes);
  EXPECT_THAT(std::ranges::find(report.gates, "tree", &GateResult::name)->detail,
              HasSubstr("files are the previous version's"));
  const auto image = oci::open_image(oci::create_layout(dir_ / "rebuilt"), "new", old_.config.platform);
  const auto checked = check(image, settings.previous).gates;
  EXPECT_TRUE(all_pass(checked)) << testing::PrintToString(failed(checked));
}

TEST_F(ApplyTest, OneThatFailsAGateHasNoName) {
  sessions_.broken = {"lab"};
  const auto report = apply();
  EXPECT_FALSE(report.published);
  EXPECT_TRUE(failed(report.gates).contains("imports"));
  EXPECT_FALSE(is_there("new"));
  EXPECT_TRUE(is_there(report.written.image.to_string())) << "what was written waits for the garbage collection";
  EXPECT_FALSE(
      find_proof(oci::open_image(layout_, report.written.image.to_string(), old_.config.platform), old_.digest()));
}

TEST_F(ApplyTest, TheFirstGateThatFailsIsTheLastThatIsAskedUnlessAllAreWanted) {
  sessions_.broken = {"lab"};
  const auto stopped = apply().gates;
  EXPECT_EQ(failed(stopped), std::set<std::string>{"imports"});
  for (const auto* name : {"replay", "rebuild"}) {
    const auto& gate = *std::ranges::find(stopped, name, &GateResult::name);
    EXPECT_FALSE(gate.asked) << name;
  }
  EXPECT_THAT(std::ranges::find(stopped, "replay", &GateResult::name)->detail,
              HasSubstr("stopped at the first failure"));
  EXPECT_EQ(failed(apply(false, true).gates), (std::set<std::string>{"imports", "replay"}));
}

TEST_F(ApplyTest, TheOldImageIsAskedOnceForWhatIsInDoubtAndForNothingElse) {
  ASSERT_TRUE(apply().published);
  EXPECT_THAT(replay_.sets, ::testing::SizeIs(2)) << "lab alone, and lab with plots";
  EXPECT_TRUE(sessions_.imported_before.empty()) << "the new image imports all and misses nothing";
  sessions_.broken = {"lab"};
  ASSERT_FALSE(apply(false, true).published);
  using Times = std::map<std::vector<std::string>, int>;
  EXPECT_EQ(sessions_.imported_before, (Times{{{"lab"}, 1}, {{"lab", "plots"}, 1}}));
}

TEST_F(ApplyTest, OneThatIsStoppedHasNoName) {
  sessions_.on_run = [this] { cancel_.cancel(); };
  EXPECT_THROW(apply(), Cancelled);
  EXPECT_FALSE(is_there("new"));
}

TEST_F(ApplyTest, StoppedWhileWritingItHasNoNameEither) {
  cancel_.cancel();
  EXPECT_THROW(apply(), Cancelled);
  EXPECT_FALSE(is_there("new"));
}

}  // namespace
}  // namespace varve::prune
