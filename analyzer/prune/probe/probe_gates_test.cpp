// What B4 of a broken image lets pass today: nothing of it may get through these gates.
#include "analyzer/prune/probe/probe_gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/prune/apply/import_session.h"
#include "testing/fake_sessions.h"
#include "testing/packages_image.h"

namespace varve::prune {
namespace {

using test::FakeImage;
using test::FakeSessions;
using test::kSite;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// An old image, and a new one from which a test takes something.
class ProbeGates : public testing::Test {
 protected:
  struct Image {
    FakeImage files;
    packages::Inventory inventory;
    void read(const std::string& name) {
      files.files.facts_.image = digest_of(name);
      inventory = packages::read_inventory(files.files);
    }
  };

  static void add_plug(FakeImage& image) {
    image.add({"plug",
               "",
               {{"plug/__init__.py", "x"}, {"../../../share/jupyter/kernels/plug/kernel.json", "{}"}},
               "[console_scripts]\nplug = plug:main\n[odd.group]\na = plug.deep:A\n"});
    image.files.add("usr/local/bin/plug", "#!python")
        .add("usr/local/share/jupyter/labextensions/@x/plug/package.json", "{}");
  }
  static void add_rest(FakeImage& image) {
    image.add({"near", "", {{"near/__init__.py", "import far"}}})
        .add({"far", "", {{"far/__init__.py", "far"}, {"far/big.so", "0123456789"}}});
    image.add({"lab", "", {}, "[console_scripts]\njupyter-labextension = lab:main\n"});
    image.files.add("usr/local/bin/jupyter-labextension", "#!python");
  }

  void SetUp() override {
    config_.cmd = {"start.sh"};
    for (auto* image : {&before_, &after_}) add_rest(image->files);
    add_plug(before_.files);
    before_.read("old");
    const std::string list = "        @x/plug v1 enabled OK (python, plug)\n";
    old_says().programs["/usr/local/bin/jupyter-labextension list"] = {{"out", list}};
    old_says().programs["start.sh"] = {{"outcome", "ok"}};
    old_says().programs["/usr/local/share/jupyter/kernels/plug/kernel.json"] = {
        {"out", "{\"outcome\":\"ok\",\"detail\":\"\"}"}};
    sessions_.of[digest_of("new")] = old_says();
  }
  FakeSessions::Says& old_says() { return sessions_.of[digest_of("old")]; }
  FakeSessions::Says& new_says() { return sessions_.of[digest_of("new")]; }

  // The new image is as it is now; the old half is kept.
  GateResult judged(const std::function<void(const ProbedPair&, GateResult&)>& judge) {
    after_.read("new");
    const CancelFlag cancel;
    if (!probe_) {
      Progress progress;
      probe_ = probe_image(sessions_, before_.inventory, before_.files.files.tree().entries,
                           probe_targets(before_.files.files, before_.inventory, config_), {}, {progress, cancel});
    }
    const ImagePair images{before_.inventory, after_.inventory, plan_};
    const ProbedPair pair{.sessions = sessions_,
                          .images = images,
                          .before = *probe_,
                          .after = after_.files.files,
                          .targets = [&] { return probe_targets(after_.files.files, after_.inventory, config_); },
                          .options = {},
                          .answers = answers_,
                          .cancel = cancel};
    return run_gate("starts", {}, [&](GateResult& result) { judge(pair, result); });
  }

  Image before_, after_;
  oci::ImageConfig config_;
  FakeSessions sessions_;
  std::optional<usage::Probe> probe_;
  ImportAnswers answers_;
  const Plan* plan_ = nullptr;
};

TEST_F(ProbeGates, AFaithfulCopyPassesAndTheOldImageIsNotRunAgain) {
  add_plug(after_.files);
  EXPECT_THAT(judged(judge_starts).findings, IsEmpty());
  old_says().broken = "the old image is run";
  EXPECT_TRUE(judged(judge_starts).ok);
  EXPECT_THAT(judged(judge_starts).detail, HasSubstr("3 kernels and starts asked"));
  EXPECT_THAT(judged(judge_listed).detail, HasSubstr("2 extensions and entry points asked"));
  EXPECT_TRUE(judged(judge_listed).ok);
  const auto scripts = judged([](const ProbedPair& pair, GateResult& result) {
    judge_scripts(pair, {"plug", "ls"}, result);
  });
  EXPECT_TRUE(scripts.ok);
  EXPECT_THAT(scripts.detail, HasSubstr("1 scripts that notebooks name"));
}

TEST_F(ProbeGates, AKernelThatIsGoneOrDoesNotReplyFails) {
  EXPECT_THAT(judged(judge_starts).findings, ElementsAre("kernel plug: it is not there any more; before: ok"));
  add_plug(after_.files);
  new_says().programs["/usr/local/share/jupyter/kernels/plug/kernel.json"] = {
      {"out", "{\"outcome\":\"no reply\",\"detail\":\"No module named plug_launcher\"}"}};
  EXPECT_THAT(judged(judge_starts).findings,
              ElementsAre("kernel plug: no reply: No module named plug_launcher; before: ok"));
}

TEST_F(ProbeGates, AnErrorThatEachStartOfPythonPrintsFails) {
  add_plug(after_.files);
  new_says().programs["/usr/local/bin/python3.11 -c pass"] = {{"err", "Error processing line 1 of plug.pth\n"}};
  EXPECT_THAT(
      judged(judge_starts).findings,
      ElementsAre("python usr/local/bin/python3.11: exit 0: Error processing line 1 of plug.pth; before: exit 0"));
}

TEST_F(ProbeGates, ACommandThatEndsFails) {
  add_plug(after_.files);
  new_says().programs["start.sh"] = {{"outcome", "exit 1"}, {"err", "ModuleNotFoundError: plug"}};
  EXPECT_THAT(judged(judge_starts).findings,
              ElementsAre("command start.sh: exit 1: ModuleNotFoundError: plug; before: ok"));
}

TEST_F(ProbeGates, LostExtensionsAndEntryPointsOfUnknownGroupsFail) {
  EXPECT_THAT(judged(judge_listed).findings,
              ElementsAre("entry-point odd.group:a: it is not there any more; before: ok",
                          "lab-extension @x/plug: it is not there any more; before: ok"));
  add_plug(after_.files);
  new_says().imports["plug.deep:A"] = {{"outcome", "ImportError"}, {"detail", "gone"}};
  EXPECT_THAT(judged(judge_listed).findings, ElementsAre("entry-point odd.group:a: ImportError: gone; before: ok"));
}

TEST_F(ProbeGates, AScriptThatNotebooksNameFailsAndNoOther) {
  const auto judge = [&](const std::string& named) {
    return judged([&](const ProbedPair& pair, GateResult& result) { judge_scripts(pair, {named}, result); });
  };
  EXPECT_THAT(judge("plug").findings, ElementsAre("script plug: it is not there any more; before: exit 0"));
  EXPECT_THAT(judge("jupyter-labextension").findings, IsEmpty());
  add_plug(after_.files);
  new_says().programs["/usr/local/bin/plug --help"] = {{"outcome", "exit 1"}, {"err", "Traceback"}};
  EXPECT_THAT(judge("plug").findings, ElementsAre("script plug: exit 1: Traceback; before: exit 0"));
}

TEST_F(ProbeGates, WhatDidNotWorkBeforeMayStayBroken) {
  add_plug(after_.files);
  old_says().programs["/usr/local/share/jupyter/kernels/plug/kernel.json"] =
      new_says().programs["/usr/local/share/jupyter/kernels/plug/kernel.json"] = {
          {"out", "{\"outcome\":\"no reply\",\"detail\":\"\"}"}};
  const auto result = judged(judge_starts);
  EXPECT_TRUE(result.ok);
  EXPECT_THAT(result.detail, HasSubstr("1 did not work before"));
}

TEST_F(ProbeGates, AProbeOfAnotherImageJudgesNothing) {
  add_plug(after_.files);
  EXPECT_TRUE(judged(judge_starts).ok);
  probe_->image = digest_of("another");
  EXPECT_THAT(judged(judge_starts).detail, HasSubstr("could not run: the probe is of sha256:"));
}

TEST_F(ProbeGates, WhatImportsMissedIsKnownOfTheProbeOfTheOldImage) {
  add_plug(after_.files);
  old_says().imports["near"] = new_says().imports["near"] = {{"missed", {"far.extra", "nobody"}}};
  EXPECT_TRUE(judged(judge_starts).ok);
  take_missed(*probe_, after_.inventory, answers_);
  EXPECT_THAT(answers_.missed_in_probe, IsEmpty()) << "it is no probe of that image";
  take_missed(*probe_, before_.inventory, answers_);
  EXPECT_THAT(answers_.missed_in_probe.at("near"), ElementsAre("far.extra"));
  EXPECT_THAT(answers_.missed_in_probe.at("far"), IsEmpty());
  sessions_.imported.clear();
  const ImagePair images{before_.inventory, after_.inventory, plan_};
  GateResult result;
  judge_imports(sessions_, images, {}, answers_, result);
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_THAT(sessions_.imported[digest_of("old")], IsEmpty());
}

// One layer in which far/big.so alone is cold.
class ColdReads : public ProbeGates {
 protected:
  void SetUp() override {
    ProbeGates::SetUp();
    add_plug(after_.files);
    map_->layer_digest = digest_of("layer");
    map_->stream_bytes = 1000;
    files("far/big.so", 500);
    cold_.layers = {{.layer_digest = map_->layer_digest, .ranges = {{.offset = 512, .length = 100}}}};
    for (const auto* name : {"far", "lab", "near", "plug"}) {
      auto& row = kept_.verdicts.emplace_back();
      row.name = name;
      row.source = "pip";
      row.verdict = row.name == "far" ? Verdict::kCold : Verdict::kHot;
    }
    plan_ = &kept_;
  }
  void files(const std::string& path, std::uint64_t offset) {
    auto& entry = const_cast<index::FlatTree&>(after_.files.files.tree()).entries.at(kSite + "/" + path);
    entry.runs = {{.layer = 0, .run = {.file_offset = 0, .stream_offset = offset, .length = 100}}};
  }
  GateResult read() {
    return judged([&](const ProbedPair& pair, GateResult& result) { judge_cold_reads(pair, cold_, {map_}, result); });
  }

  std::shared_ptr<index::LayerMap> map_ = std::make_shared<index::LayerMap>();
  index::ColdRanges cold_;
  Plan kept_;
};

TEST_F(ColdReads, OfAnImportThatIsKeptNearFail) {
  EXPECT_TRUE(read().ok);
  EXPECT_THAT(read().detail, HasSubstr("3 names of what is kept near imported; 1 files have cold bytes"));
  new_says().imports["near"] = {{"loaded", {"near", "far"}},
                                {"files", {"/" + kSite + "/far/__init__.py", "/" + kSite + "/far/big.so"}}};
  EXPECT_THAT(read().findings,
              ElementsAre("import near: it reads a file that is cold, namely " + kSite + "/far/big.so"));
}

TEST_F(ColdReads, LeaveTheirAnswersToTheGateImports) {
  new_says().imports["near"] = {{"files", {"/" + kSite + "/near/__init__.py"}}};
  EXPECT_TRUE(read().ok);
  sessions_.imported.clear();
  const ImagePair images{before_.inventory, after_.inventory, plan_};
  EXPECT_TRUE(
      run_gate("imports", {}, [&](GateResult& result) { judge_imports(sessions_, images, {}, answers_, result); }).ok);
  EXPECT_THAT(sessions_.imported[digest_of("new")], ElementsAre("far"));
  EXPECT_THAT(sessions_.imported[digest_of("old")], IsEmpty());
}

TEST_F(ColdReads, OfWhatIsColdItselfAreAsTheyShouldBe) {
  new_says().imports["far"] = {{"files", {"/" + kSite + "/far/big.so"}}};
  EXPECT_TRUE(read().ok);
}

TEST_F(ColdReads, OfAFileThatIsKeptNearAndColdInPartAreNone) {
  files("near/__init__.py", 550);
  new_says().imports["near"] = {{"files", {"/" + kSite + "/near/__init__.py"}}};
  EXPECT_TRUE(read().ok);
  plan_ = nullptr;
  EXPECT_TRUE(read().ok);
  files("near/__init__.py", 512);
  EXPECT_FALSE(read().ok);
}

TEST_F(ColdReads, AreNotLookedForWhereNothingIsCold) {
  cold_.layers.clear();
  const auto sessions = sessions_.count;
  EXPECT_TRUE(judged([](const ProbedPair&, GateResult&) {}).ok);
  const auto with_probe = sessions_.count;
  EXPECT_TRUE(read().ok);
  EXPECT_EQ(sessions_.count, with_probe);
  EXPECT_GT(with_probe, sessions);
}

}  // namespace
}  // namespace varve::prune
