#include "analyzer/prune/probe_edges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/prune/make_plan.h"
#include "testing/packages_image.h"

namespace varve::prune {
namespace {

using test::FakeImage;
using test::used;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using usage::ProbedItem;
using usage::ProbedKind;
using usage::ProbeEdge;

// keras is used by everybody; what it loads besides is no requirement of its.
class ProbeEdges : public testing::Test {
 protected:
  ProbeEdges()
      : image_(
            FakeImage().add({"keras"}).add({"opencv"}).add({"pyarrow"}).add({"tool"}).add({"ipykernel"}).add({"rest"})),
        inventory_(packages::read_inventory(image_.files)),
        nodes_(inventory_),
        snapshot_(test::snapshot_of(inventory_, 1000)) {
    used(snapshot_, "keras", 500, 200);
  }

  void edge(ProbedKind kind, const std::string& name, const std::string& of, ProbeEdge::Kind edge,
            const std::string& module, const std::string& to) {
    probe_.items.push_back({.kind = kind, .name = name, .distribution = of, .outcome = "ok", .detail = ""});
    probe_.edges.push_back(
        {.kind = edge, .item = std::uint32_t(probe_.items.size() - 1), .to = module, .to_distribution = to});
  }

  Plan plan() {
    auto graph = installed_graph(nodes_, image_.files.tree().entries, {});
    add_probe_edges(probe_, nodes_, graph);
    return make_plan({.nodes = nodes_,
                      .snapshot = snapshot_,
                      .graph = graph,
                      .roots = probe_roots(probe_, nodes_),
                      .thresholds = {},
                      .image = digest_of("image"),
                      .reference = "oci:made:up",
                      .today = 20778,
                      .previous = nullptr,
                      .waivers = {},
                      .unsure = {},
                      .problems = {}})
        .plan;
  }
  std::string of(const std::string& name) {
    for (const auto& one : plan().verdicts)
      if (one.name == name)
        return fmt::format("{} {}|{}|{}", verdict_name(one.verdict), one.reasons[0].kind, one.reasons[0].by,
                           one.reasons[0].text);
    return "nothing";
  }

  FakeImage image_;
  packages::Inventory inventory_;
  Nodes nodes_;
  usage::Snapshot snapshot_;
  usage::Probe probe_{.image = digest_of("image"), .day = 0, .items = {}, .edges = {}};
};

TEST_F(ProbeEdges, WhatAHotImportLoadsOrLooksForIsHot) {
  EXPECT_THAT(of("opencv"), HasSubstr("cold unused"));
  edge(ProbedKind::kImport, "keras", "keras", ProbeEdge::Kind::kLoads, "cv2", "opencv");
  edge(ProbedKind::kImport, "keras", "keras", ProbeEdge::Kind::kTries, "pyarrow", "pyarrow");
  edge(ProbedKind::kImport, "opencv", "opencv", ProbeEdge::Kind::kLoads, "", "rest");
  EXPECT_EQ(of("opencv"), "hot loads|keras|loads cv2 when keras is imported");
  EXPECT_EQ(of("pyarrow"), "hot tries|keras|looks for pyarrow when keras is imported");
  EXPECT_EQ(of("rest"), "hot loads|opencv|loads files of rest when opencv is imported");
  EXPECT_THAT(of("tool"), HasSubstr("cold"));
  EXPECT_THAT(explain(plan(), "rest"), Contains(HasSubstr("opencv is hot; keras: loads cv2")));
}

TEST_F(ProbeEdges, WhatIsColdHoldsNothing) {
  edge(ProbedKind::kImport, "tool", "tool", ProbeEdge::Kind::kLoads, "cv2", "opencv");
  EXPECT_THAT(of("opencv"), HasSubstr("cold unused"));
}

TEST_F(ProbeEdges, AScriptHoldsWhatItRunsAndAKernelHoldsItWhateverIsUsed) {
  edge(ProbedKind::kScript, "keras-cli", "keras", ProbeEdge::Kind::kRuns, "tool", "tool");
  edge(ProbedKind::kKernel, "python3", "ipykernel", ProbeEdge::Kind::kRuns, "rest", "rest");
  EXPECT_EQ(of("tool"), "hot runs|keras|loads tool when its script keras-cli runs");
  EXPECT_EQ(of("rest"), "hot started|python3|the kernel python3 loads it when it starts");
}

TEST_F(ProbeEdges, WhatTheImageDoesNotHaveIsLeftOut) {
  edge(ProbedKind::kImport, "keras", "keras", ProbeEdge::Kind::kLoads, "x", "of-another-image");
  edge(ProbedKind::kKernel, "r", "", ProbeEdge::Kind::kRuns, "x", "of-another-image");
  EXPECT_EQ(plan().verdicts.size(), 6u);
}

TEST_F(ProbeEdges, ANotebookNeedsWhatItsImportsLoad) {
  edge(ProbedKind::kImport, "keras", "keras", ProbeEdge::Kind::kLoads, "cv2", "opencv");
  edge(ProbedKind::kImport, "keras", "keras", ProbeEdge::Kind::kTries, "pyarrow", "pyarrow");
  edge(ProbedKind::kImport, "google.cloud.storage", "gcs", ProbeEdge::Kind::kLoads, "rest", "rest");
  edge(ProbedKind::kScript, "keras-cli", "keras", ProbeEdge::Kind::kRuns, "tool", "tool");
  const ImportClosure closure(probe_);
  const auto needs = [&](std::vector<std::string> modules, std::vector<std::string> named) {
    usage::NotebookImports notebook;
    notebook.modules = std::move(modules);
    notebook.distributions = std::move(named);
    closure.close(notebook);
    return notebook.distributions;
  };
  EXPECT_THAT(needs({"keras.layers"}, {"keras", "zoo"}), ElementsAre("keras", "opencv", "zoo"));
  EXPECT_THAT(needs({"google.cloud.storage.blob"}, {"gcs"}), ElementsAre("gcs", "rest"));
  EXPECT_THAT(needs({"google.cloud"}, {"gcs"}), ElementsAre("gcs"));
  usage::SessionUse session;
  session.distributions = {"keras"};
  closure.close(session);
  EXPECT_THAT(session.distributions, ElementsAre("keras", "opencv"));
}

// A forecast that closes nothing would say that nobody touches what is cold.
TEST_F(ProbeEdges, TheForecastCountsNotebooksWhoseImportsLoadSomethingCold) {
  edge(ProbedKind::kImport, "keras", "keras", ProbeEdge::Kind::kLoads, "cv2", "opencv");
  ForecastEvidence evidence;
  for (int i = 0; i < 400; ++i) {
    usage::NotebookImports notebook;
    notebook.path = fmt::format("{:03}.ipynb", i);
    notebook.code = digest_of(notebook.path);
    notebook.modules = {i % 8 == 0 ? "keras" : "rest"};
    notebook.distributions = {i % 8 == 0 ? "keras" : "rest"};
    evidence.notebooks.push_back(notebook);
  }
  Plan cold;
  for (const auto* name : {"keras", "opencv", "rest"}) {
    auto& row = cold.verdicts.emplace_back();
    row.name = name;
    row.source = "pip";
    row.verdict = row.name == "opencv" ? Verdict::kCold : Verdict::kHot;
    row.reasons = {{.kind = "unused", .by = "", .text = ""}};
  }
  auto blind = cold;
  add_forecast(blind, {}, evidence, {});
  EXPECT_EQ(blind.forecast.touching, 0u);
  ImportClosure(probe_).close(evidence);
  add_forecast(cold, {}, evidence, {});
  EXPECT_EQ(cold.forecast.touching, 50u);
  EXPECT_EQ(cold.affected.size(), 50u);
  EXPECT_GE(cold.forecast.expected_rate, 0.125);
}

}  // namespace
}  // namespace varve::prune
