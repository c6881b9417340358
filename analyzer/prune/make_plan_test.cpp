#include "analyzer/prune/make_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/errors.h"
#include "testing/elf_tree.h"
#include "testing/planning.h"

namespace varve::prune {
namespace {

using test::FakeImage;
using test::find;
using test::first_reason;
using test::heard_every_day;
using test::kSite;
using test::kToday;
using test::Planning;
using test::used;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(MakePlan, WhatNobodyUsedGoesColdAndWhatWasUsedStays) {
  Planning planning(FakeImage().add({"alpha"}).add({"beta"}));
  used(planning.snapshot, "alpha", 500, 200);
  const auto made = planning.make();
  EXPECT_THAT(made.problems, IsEmpty());
  EXPECT_EQ(planning.verdicts(), "alpha hot, beta cold");
  EXPECT_EQ(first_reason(planning, "alpha"),
            "used||500 uses in 1,000 sessions of 90 days, at most 53 % at 95 %, by 200 users at most");
  const auto& beta = find(made.plan, "beta");
  ASSERT_EQ(beta.reasons.size(), 2u);
  EXPECT_EQ(beta.reasons[0].kind, "unused");
  EXPECT_EQ(beta.reasons[0].text, "0 uses in 1,000 sessions of 90 days, at most 0.3 % at 95 %");
  EXPECT_EQ(beta.reasons[1].text, "nothing that is kept needs it");
  EXPECT_DOUBLE_EQ(beta.bound, 0.003);
  EXPECT_EQ(beta.unused_since, kToday);
  EXPECT_EQ(beta.imports, std::vector<std::string>{"beta"});
}

TEST(MakePlan, NoDataIsNotNoUse) {
  Planning planning(FakeImage().add({"alpha"}));
  planning.snapshot.images[0].heard = planning.snapshot.images[0].launched = 0;
  EXPECT_EQ(planning.verdicts(), "alpha hot");
  EXPECT_THAT(planning.make().problems, ElementsAre(StartsWith("No session was heard")));
  EXPECT_THAT(first_reason(planning, "alpha"), StartsWith("new||"));
  // Too few to tell, and too few of those that were launched.
  planning.snapshot.images[0].heard = planning.snapshot.images[0].launched = 299;
  EXPECT_EQ(planning.verdicts(), "alpha watch");
  EXPECT_THAT(first_reason(planning, "alpha"), HasSubstr("300 are needed"));
  planning.snapshot.images[0].heard = planning.snapshot.images[0].launched = 300;
  EXPECT_EQ(planning.verdicts(), "alpha cold");
  planning.snapshot.images[0].launched = 601;
  EXPECT_EQ(planning.verdicts(), "alpha watch");
  EXPECT_THAT(first_reason(planning, "alpha"), HasSubstr("only 300 of 601 launched sessions were heard"));
}

TEST(MakePlan, AnImageThatNobodyReportsOnSaysNothing) {
  Planning planning(FakeImage().add({"alpha"}));
  test::use_of(planning.snapshot, "alpha").packages.clear();
  EXPECT_EQ(planning.verdicts(), "alpha hot");
  EXPECT_THAT(planning.make().plan.unsure, ElementsAre(StartsWith("The usage database knows none"),
                                                       "On no image of which anything is known, so kept: alpha"));
  EXPECT_EQ(planning.make().problems.size(), 1u);
  // Notebooks that were scanned without the image's packages say nothing of them.
  planning.thresholds.basis = Basis::kNotebooks;
  planning.snapshot.notebooks_scanned = planning.snapshot.notebooks_distinct = 1000;
  EXPECT_EQ(planning.verdicts(), "alpha hot");
}

TEST(MakePlan, FewUsersAreWatchedAndColdOnlyWhenAsked) {
  Planning planning(FakeImage().add({"alpha"}));
  used(planning.snapshot, "alpha", 3, 2);
  EXPECT_EQ(planning.verdicts(), "alpha watch");
  planning.thresholds.cold_below_users = 3;
  EXPECT_EQ(planning.verdicts(), "alpha cold");
  planning.thresholds.cold_below_users = 2;
  EXPECT_EQ(planning.verdicts(), "alpha watch");
  planning.thresholds.watch_below_users = 2;
  EXPECT_EQ(planning.verdicts(), "alpha hot");
  // Seldom is not sure among few sessions.
  planning.thresholds = {};
  planning.thresholds.cold_below_users = 3;
  planning.snapshot.images[0].heard = planning.snapshot.images[0].launched = 500;
  EXPECT_EQ(planning.verdicts(), "alpha hot");
}

TEST(MakePlan, EveryKindOfEvidenceCounts) {
  const std::vector<std::function<void(usage::DistributionUse&)>> kinds{
      [](auto& use) { use.sessions = 400; },        [](auto& use) { use.transitive_only = use.sessions = 400; },
      [](auto& use) { use.file_sessions = 400; },   [](auto& use) { use.exec_sessions = 400; },
      [](auto& use) { use.static_sessions = 400; },
  };
  for (const auto& kind : kinds) {
    Planning planning(FakeImage().add({"alpha"}));
    kind(test::use_of(planning.snapshot, "alpha"));
    EXPECT_EQ(planning.verdicts(), "alpha hot");
  }
  Planning named(FakeImage().add({"alpha"}));
  named.snapshot.notebooks_scanned = named.snapshot.notebooks_distinct = 1000;
  test::use_of(named.snapshot, "alpha").notebooks = 1;
  EXPECT_EQ(named.verdicts(), "alpha watch");
  test::use_of(named.snapshot, "alpha").notebooks = 100;
  EXPECT_EQ(named.verdicts(), "alpha hot");
}

TEST(MakePlan, NotebooksCanBeTheBasisWhereNoSessionIsHeard) {
  Planning planning(FakeImage().add({"alpha"}).add({"beta"}));
  planning.snapshot.images.clear();
  planning.snapshot.notebooks_scanned = planning.snapshot.notebooks_distinct = 1000;
  test::use_of(planning.snapshot, "alpha").notebooks = 300;
  EXPECT_THAT(planning.make().problems, ElementsAre(HasSubstr("--basis notebooks")));
  planning.thresholds.basis = Basis::kNotebooks;
  EXPECT_EQ(planning.verdicts(), "alpha hot, beta cold");
  EXPECT_EQ(first_reason(planning, "beta"), "unused||0 uses in 1,000 notebooks, at most 0.3 % at 95 %");
  planning.snapshot.notebooks_distinct = 100;
  EXPECT_EQ(planning.verdicts(), "alpha hot, beta watch");
}

TEST(MakePlan, WhatHasNothingToImportIsNotSaidToBeUnused) {
  Planning planning(FakeImage().add({.name = "data", .files = {{"../../../share/data/x.txt", "x"}}}).add({"beta"}));
  EXPECT_EQ(planning.verdicts(), "beta cold, data watch");
  test::use_of(planning.snapshot, "beta").file_sessions = 1000;
  EXPECT_EQ(planning.verdicts(), "beta hot, data cold");
}

TEST(MakePlan, RequirementsHoldAsTheirMarkersSay) {
  Planning planning(
      FakeImage()
          .add({.name = "app", .metadata = "Requires-Dist: lib>=0.5\nRequires-Dist: old; python_version < \"3\"\n"})
          .add({.name = "lib", .metadata = "Requires-Dist: deep\n"})
          .add({"deep"})
          .add({"old"}));
  EXPECT_EQ(planning.verdicts(), "app cold, deep cold, lib cold, old cold");
  used(planning.snapshot, "app", 500, 200);
  EXPECT_EQ(planning.verdicts(), "app hot, deep hot, lib hot, old cold");
  EXPECT_EQ(first_reason(planning, "lib"), "requires|app|needs lib>=0.5");
  EXPECT_THAT(explain(planning.make().plan, "deep"),
              ElementsAre(StartsWith("deep 1.0 (pip) is hot"), "  lib: needs deep [requires]",
                          "    lib is hot; app: needs lib>=0.5 [requires]", StartsWith("      app is hot; 500 uses"),
                          StartsWith("  also 0 uses")));
}

TEST(MakePlan, WhatOnlyWatchedOnesNeedIsWatched) {
  Planning planning(FakeImage().add({.name = "app", .metadata = "Requires-Dist: lib\n"}).add({"lib"}));
  used(planning.snapshot, "app", 2, 2);
  EXPECT_EQ(planning.verdicts(), "app watch, lib watch");
}

TEST(MakePlan, AnExtraCountsWhenSomethingThatStaysAsksForIt) {
  const auto image = [](const std::string& asks) {
    return FakeImage()
        .add({.name = "app", .metadata = "Requires-Dist: " + asks + "\n"})
        .add({.name = "lib",
              .metadata = "Provides-Extra: socks\nProvides-Extra: all\nRequires-Dist: pysocks; extra == \"socks\"\n"
                          "Requires-Dist: lib[socks]; extra == \"all\"\nRequires-Dist: numpy; extra == \"all\"\n"})
        .add({"pysocks"})
        .add({"numpy"});
  };
  for (const auto& [asks, expected] :
       std::vector<std::pair<std::string, std::string>>{{"lib", "app hot, lib hot, numpy cold, pysocks cold"},
                                                        {"lib[socks]", "app hot, lib hot, numpy cold, pysocks hot"},
                                                        {"lib[all]", "app hot, lib hot, numpy hot, pysocks hot"}}) {
    Planning planning(image(asks));
    used(planning.snapshot, "app", 500, 200);
    EXPECT_EQ(planning.verdicts(), expected) << asks;
  }
}

TEST(MakePlan, ObservedImportsHold) {
  Planning planning(FakeImage().add({"app"}).add({"optional"}));
  used(planning.snapshot, "app", 500, 200);
  test::use_of(planning.snapshot, "optional").importers["app"] = 4;
  EXPECT_EQ(planning.verdicts(), "app hot, optional hot");
  EXPECT_EQ(first_reason(planning, "optional"), "imports|app|imported it in 4 sessions");
}

TEST(MakePlan, EntryPointsHoldWhatAGroupsOwnerLoads) {
  Planning planning(
      FakeImage()
          .add({"pytest"})
          .add({.name = "plugin", .entry_points = "[pytest11]\nx = plugin\n"})
          .add({"jupyter-client"})
          .add({.name = "provisioner", .entry_points = "[jupyter_client.kernel_provisioners]\nx = provisioner:P\n"})
          .add({.name = "stranger",
                .entry_points = "[nobody.knows]\nx = stranger\n[console_scripts]\npytest-x = stranger:main\n"})
          .add({"own"})
          .add({.name = "scikit-host", .files = {{"skhost/__init__.py", ""}}})
          .add({.name = "by-import", .entry_points = "[skhost.plugins]\nx = by_import\n"})
          .add({.name = "by-rule", .entry_points = "[mysite_hooks]\nx = by_rule\n"}));
  planning.rules.consumers = {{"mysite_*", "own"}};
  EXPECT_EQ(planning.verdicts(),
            "by-import cold, by-rule cold, jupyter-client cold, own cold, plugin cold, provisioner cold, pytest cold, "
            "scikit-host cold, stranger watch");
  for (const auto* name : {"pytest", "jupyter-client", "own", "scikit-host"}) used(planning.snapshot, name, 500, 200);
  EXPECT_EQ(
      planning.verdicts(),
      "by-import hot, by-rule hot, jupyter-client hot, own hot, plugin hot, provisioner hot, pytest hot, scikit-host "
      "hot, stranger watch");
  EXPECT_EQ(first_reason(planning, "plugin"), "entry-point|pytest|loads entry points of the group pytest11");
  EXPECT_EQ(first_reason(planning, "stranger"),
            "unknown-group|nobody.knows|it has entry points in this group, and nobody is known who loads them");
  EXPECT_THAT(planning.make().plan.unsure,
              ElementsAre("They have entry points in groups of which no loader is known, so they go no further than "
                          "watch: stranger"));
}

TEST(MakePlan, AProgramHoldsWhatItRuns) {
  Planning planning(FakeImage()
                        .add({.name = "front", .entry_points = "[console_scripts]\nfront = engine.cli:main\n"})
                        .add({"engine"}));
  used(planning.snapshot, "front", 500, 200);
  EXPECT_EQ(planning.verdicts(), "engine hot, front hot");
  EXPECT_EQ(first_reason(planning, "engine"), "script|front|has the program front, which runs engine.cli:main");
}

TEST(MakePlan, LibrariesAreHeldByWhatIsLinkedToThem) {
  const auto kTool = "usr/local/bin/tool";
  Planning planning(FakeImage()
                        .add({.name = "linked", .files = {{"linked/_core.so", "ELF"}, {"linked/__init__.py", ""}}})
                        .add({.name = "blas", .files = {{"blas/lib/libblas.so.3", "ELF"}, {"blas/__init__.py", ""}}})
                        .add({.name = "z", .files = {{"z/libz.so", "ELF"}, {"z/__init__.py", ""}}}));
  planning.image.files.add(kTool, "ELF");
  varve::test::FakeTree tree;
  tree.library(kSite + "/linked/_core.so", {"libblas.so.3"}, varve::test::with_runpath("$ORIGIN/../blas/lib"));
  tree.library(kSite + "/blas/lib/libblas.so.3");
  tree.library(kSite + "/z/libz.so");
  used(planning.snapshot, "linked", 500, 200);
  EXPECT_EQ(planning.verdicts(), "blas cold, linked hot, z cold");
  planning.elf = tree.tree;
  EXPECT_EQ(planning.verdicts(), "blas hot, linked hot, z cold");
  EXPECT_EQ(first_reason(planning, "blas"), "elf|linked|_core.so needs libblas.so.3");
  // What belongs to nobody stays, and holds what it needs.
  EXPECT_THAT(planning.make().plan.unsure, IsEmpty());
  tree.library(kTool, {"libz.so"}, varve::test::with_runpath("/" + kSite + "/z"));
  planning.elf = tree.tree;
  EXPECT_EQ(planning.verdicts(), "blas hot, linked hot, z hot");
  EXPECT_EQ(first_reason(planning, "z"),
            "unowned-file|usr/local/bin/tool|tool needs libz.so; the file belongs to no package, so it stays");
}

TEST(MakePlan, SaysWhichLibrariesCouldNotBeReadWhole) {
  Planning planning(FakeImage().add({"alpha"}));
  varve::test::FakeTree tree;
  index::ElfFacts facts;
  facts.broken = "dynamic string table outside the file";
  tree.library(kSite + "/alpha/x.so", {}, facts);
  planning.elf = tree.tree;
  EXPECT_THAT(planning.make().plan.unsure, ElementsAre("What 1 ELF file needs is not wholly known (" + kSite +
                                                       "/alpha/x.so: dynamic string table outside the file)"));
}

TEST(MakePlan, CudaIsNeverCold) {
  Planning planning(
      FakeImage()
          .add({.name = "nvidia-cublas-cu12",
                .files = {{"nvidia/cublas/lib/libcublas.so.12", "ELF"}, {"nvidia/cublas/__init__.py", ""}}})
          .add({"beta"}));
  planning.cuda.files[kSite + "/nvidia/cublas/lib/libcublas.so.12"] = {.rule = "R1 libcublas*"};
  EXPECT_EQ(planning.verdicts(), "beta cold, nvidia-cublas-cu12 hot");
  EXPECT_THAT(first_reason(planning, "nvidia-cublas-cu12"), StartsWith("cuda|R1 libcublas*|1 CUDA file of it"));
}

TEST(MakePlan, ThoseThatShareAModuleStayTogether) {
  Planning planning(
      FakeImage()
          .add({.name = "opencv-python", .files = {{"cv2/__init__.py", ""}, {"cv2/cv2.so", ""}}})
          .add({.name = "opencv-headless", .files = {{"cv2/__init__.py", ""}, {"cv2/cv2.so", ""}}})
          .add({.name = "stray", .files = {{"stray/__init__.py", ""}, {"tests/__init__.py", ""}, {"LICENSE", ""}}})
          .add({.name = "stray2", .files = {{"stray2/__init__.py", ""}, {"tests/__init__.py", ""}, {"LICENSE", ""}}}));
  used(planning.snapshot, "opencv-headless", 500, 200);
  used(planning.snapshot, "stray", 500, 200);
  EXPECT_EQ(planning.verdicts(), "opencv-headless hot, opencv-python hot, stray hot, stray2 cold");
  EXPECT_THAT(first_reason(planning, "opencv-python"), StartsWith("shares-path|opencv-headless|shares usr/local"));
  used(planning.snapshot, "opencv-headless", 0, 0);
  used(planning.snapshot, "opencv-python", 500, 200);
  EXPECT_EQ(planning.verdicts(), "opencv-headless hot, opencv-python hot, stray hot, stray2 cold");
}

TEST(MakePlan, WhatLiesBelowAPackageOfAnotherHoldsIt) {
  Planning planning(FakeImage()
                        .add({.name = "root", .files = {{"space/__init__.py", "x = 1"}, {"space/own.py", ""}}})
                        .add({.name = "part", .files = {{"space/part/__init__.py", ""}}}));
  used(planning.snapshot, "part", 500, 200);
  EXPECT_EQ(planning.verdicts(), "part hot, root hot");
  EXPECT_THAT(first_reason(planning, "root"), StartsWith("namespace|part|lies below usr/local"));
  Planning other(FakeImage()
                     .add({.name = "root", .files = {{"space/__init__.py", "x = 1"}, {"space/own.py", ""}}})
                     .add({.name = "part", .files = {{"space/part/__init__.py", ""}}}));
  used(other.snapshot, "root", 500, 200);
  EXPECT_EQ(other.verdicts(), "part cold, root hot");
}

TEST(MakePlan, WhatEachStartOfPythonReadsStays) {
  Planning planning(FakeImage()
                        .add({.name = "hooked", .files = {{"hooked/__init__.py", ""}, {"hooked.pth", "import hooked"}}})
                        .add({"beta"}));
  EXPECT_EQ(planning.verdicts(), "beta cold, hooked hot");
  EXPECT_THAT(first_reason(planning, "hooked"), StartsWith("path-file|" + kSite + "/hooked.pth|"));
}

TEST(MakePlan, WhatTheImageStartsStays) {
  Planning planning(
      FakeImage().add({.name = "server", .files = {{"server/__init__.py", ""}, {"../../../bin/serve", "#!"}}}));
  EXPECT_EQ(planning.verdicts(), "server cold");
  planning.config.cmd = {"serve"};
  EXPECT_EQ(planning.verdicts(), "server hot");
  EXPECT_THAT(first_reason(planning, "server"), StartsWith("started|serve|"));
}

TEST(MakePlan, CondaPackagesHoldWhatTheyDependOnByTheNamesOfPackages) {
  Planning planning(FakeImage().add({"torch"}));
  auto& files = planning.image.files;
  files.add("opt/conda/lib/libmkl.so", "ELF").add("opt/conda/lib/libjpeg.so", "ELF");
  files.add("opt/conda/conda-meta/pytorch-2.1.0-0.json",
            R"({"name":"pytorch","version":"2.1.0","depends":["mkl 2023.*"],"files":["x"]})");
  files.add("opt/conda/conda-meta/mkl-2023.1-0.json", R"({"name":"mkl","version":"2023.1","files":["lib/libmkl.so"]})");
  files.add("opt/conda/conda-meta/jpeg-9-0.json", R"({"name":"jpeg","version":"9","files":["lib/libjpeg.so"]})");
  planning.inventory = packages::read_inventory(files);
  planning.snapshot = test::snapshot_of(planning.inventory, 1000);
  test::use_of(planning.snapshot, "torch").file_sessions = 1;  // file accesses were collected
  used(planning.snapshot, "pytorch", 500, 200);
  EXPECT_EQ(planning.verdicts(), "jpeg cold, mkl hot, pytorch hot, torch watch");
  EXPECT_EQ(first_reason(planning, "mkl"), "conda|pytorch|depends on the conda package mkl 2023.*");
}

TEST(MakePlan, TheOperatingSystemStaysAndHoldsNothingOfAnotherPython) {
  Planning planning(FakeImage().add({"yaml"}).add({"six"}));
  auto& files = planning.image.files;
  const std::string debian = "usr/lib/python3/dist-packages";
  files.add("usr/bin/python3.11", "ELF")
      .add("usr/lib/python3.11/os.py", "#")
      .add(debian + "/apt/__init__.py", "x")
      .add(debian + "/six.py", "x");
  files.add(debian + "/apt-1.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: apt\nVersion: 1\n")
      .add(debian + "/apt-1.egg-info/requires.txt", "six\n");
  files.add(debian + "/six-1.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: six\nVersion: 1\n")
      .add("usr/lib/libz.so", "z");
  files.add("var/lib/dpkg/status",
            "Package: python3-apt\nStatus: install ok installed\nVersion: 1\nDepends: zlib1g\n\nPackage: python3-six\n"
            "Status: install ok installed\nVersion: 1\n\n"
            "Package: zlib1g\nStatus: install ok installed\nVersion: 1\n");
  files.add("var/lib/dpkg/info/python3-apt.list", "/" + debian + "/apt/__init__.py\n/" + debian +
                                                      "/apt-1.egg-info/PKG-INFO\n/" + debian +
                                                      "/apt-1.egg-info/requires.txt\n");
  files.add("var/lib/dpkg/info/python3-six.list", "/" + debian + "/six.py\n/" + debian + "/six-1.egg-info/PKG-INFO\n")
      .add("var/lib/dpkg/info/zlib1g.list", "/usr/lib/libz.so\n");
  planning.inventory = packages::read_inventory(files);
  planning.snapshot = test::snapshot_of(planning.inventory, 1000);
  // Debian's apt needs Debian's six; the six that pip put into another Python's folder is not meant.
  EXPECT_EQ(planning.verdicts(), "apt hot, six hot, six cold, yaml cold, zlib1g hot");
  EXPECT_THAT(first_reason(planning, "zlib1g"), StartsWith("system||"));
  const auto plan = planning.make().plan;
  EXPECT_THAT(find(plan, "zlib1g").reasons, testing::Contains(testing::Field(&Reason::kind, "dpkg")));
}

TEST(MakePlan, VendoredOnesFollowTheOuterOne) {
  Planning planning(FakeImage().add({.name = "outer",
                                     .files = {{"outer/__init__.py", ""},
                                               {"outer/_vendor/inner/__init__.py", ""},
                                               {"outer/_vendor/inner-1.0.dist-info/METADATA",
                                                "Metadata-Version: 2.1\nName: inner\nVersion: 1.0\n"}}}));
  EXPECT_EQ(planning.verdicts(), "outer cold");
}

TEST(MakePlan, RulesHoldByNameAndPathUntilTheyExpire) {
  Planning planning(FakeImage()
                        .add({"alpha"})
                        .add({"alphabet"})
                        .add({.name = "beta", .files = {{"beta/kernel.json", "{}"}, {"beta/__init__.py", ""}}})
                        .add({"gamma"}));
  planning.rules = parse_keep_rules(R"(
[[keep]]
name = "Alpha*"
reason = "courses start with it"
owner = "teaching"
expires = 2026-11-21
[[veto]]
path = "/usr/local/**/kernel.json"
reason = "my kernel"
owner = "ann"
[[keep]]
name = "no-such"
reason = "r"
owner = "o"
[[waive]]
gate = "rebuild"
reason = "takes too long here"
owner = "ops"
)",
                                    "team.toml");
  EXPECT_EQ(planning.verdicts(), "alpha hot, alphabet hot, beta hot, gamma cold");
  EXPECT_EQ(first_reason(planning, "alphabet"), "keep-rule|team.toml:2|courses start with it (teaching)");
  EXPECT_EQ(first_reason(planning, "beta"), "veto|team.toml:7|my kernel (ann)");
  EXPECT_THAT(planning.make().plan.unsure, ElementsAre("team.toml:11 matches nothing in this image: \"r\""));
  EXPECT_EQ(planning.make().plan.waivers.at(0).owner, "ops");
  planning.today = kToday + 1;
  EXPECT_EQ(planning.verdicts(), "alpha cold, alphabet cold, beta hot, gamma cold");
  EXPECT_THAT(planning.make().plan.unsure,
              testing::Contains("team.toml:2 counts no more since 2026-11-22: \"courses start with it\" (teaching)"));
}

TEST(MakePlan, TheBuiltInRulesKeepTheNotebookServer) {
  Planning planning(FakeImage()
                        .add({"jupyterlab"})
                        .add({.name = "ipykernel", .metadata = "Requires-Dist: tornado\n"})
                        .add({"tornado"})
                        .add({"pip"})
                        .add({"rare"}));
  planning.built_in_rules = true;
  EXPECT_EQ(planning.verdicts(), "ipykernel hot, jupyterlab hot, pip hot, rare cold, tornado hot");
  EXPECT_THAT(planning.make().plan.unsure, IsEmpty());
}

TEST(KeepRules, EachNeedsAReasonAndAnOwnerAndNothingUnknown) {
  const auto refused = [](const std::string& text, std::string_view why) {
    try {
      parse_keep_rules(text, "t.toml");
      ADD_FAILURE() << "taken: " << text;
    } catch (const CorruptData& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  };
  refused("[[keep]]\nname = \"a\"\nowner = \"o\"", "t.toml:1: 'reason' is missing");
  refused("[[keep]]\nname = \"a\"\nreason = \"r\"\nowner = \" \"", "t.toml:1: 'owner' is empty");
  refused("[[keep]]\nreason = \"r\"\nowner = \"o\"", "t.toml:1: neither 'name' nor 'path'");
  refused("[[keep]]\nname = \"a\"\nreason = \"r\"\nowner = \"o\"\nexpire = 2026-01-01", "'expire' is not known here");
  refused("[[keep]]\nname = \"a\"\nreason = \"r\"\nowner = \"o\"\nexpires = \"soon\"",
          "t.toml:5: 'expires' must be a day");
  refused("[[waive]]\ngate = \"all\"\nreason = \"r\"\nowner = \"o\"", "'all' is no gate");
  refused("[[keeps]]\nname = \"a\"", "'keeps' is not known here");
  refused("keep = 1", "must be tables");
  refused("[[keep", "t.toml:1");
}

TEST(MakePlan, UseBringsBackWhatWasCold) {
  Planning planning(FakeImage().add({"alpha"}));
  planning.previous = planning.make().plan;
  ASSERT_EQ(planning.previous->verdicts[0].verdict, Verdict::kCold);
  used(planning.snapshot, "alpha", 1, 1);
  planning.thresholds.cold_below_users = 10;  // would be cold but for the plan before
  const auto plan = planning.make().plan;
  EXPECT_EQ(plan.verdicts[0].verdict, Verdict::kWatch);
  EXPECT_THAT(plan.verdicts[0].reasons,
              testing::Contains(testing::Field(&Reason::text, "was cold in the plan of 2026-11-21, and was used")));
  EXPECT_EQ(plan.verdicts[0].unused_since, 0);
}

TEST(MakePlan, ArchivesOnlyWhatEarlierPlansSawUnusedWithoutABreak) {
  Planning planning(FakeImage().add({"alpha"}));
  planning.thresholds.archive_after = 180;
  EXPECT_EQ(planning.verdicts(), "alpha cold");  // the first plan gives notice
  auto plan = planning.make().plan;
  for (int month = 1; month <= 6; ++month) {
    planning.previous = plan;
    planning.today += 30;
    planning.snapshot.window = {.first = planning.today - 89, .last = planning.today};
    heard_every_day(planning.snapshot);
    plan = planning.make().plan;
    EXPECT_EQ(plan.verdicts[0].unused_since, kToday);
    EXPECT_EQ(plan.verdicts[0].unused_days, 30u * unsigned(month));
    EXPECT_EQ(verdict_name(plan.verdicts[0].verdict), month < 6 ? "cold" : "archived") << month;
  }
  EXPECT_THAT(plan.verdicts[0].reasons[0].text,
              HasSubstr("no use since the plan of 2026-11-21 recorded it, on 180 days with sessions"));
  // Days that nobody looked at are a break.
  planning.previous->window.last -= 91;
  EXPECT_EQ(planning.verdicts(), "alpha cold");
  EXPECT_EQ(planning.make().plan.verdicts[0].unused_since, planning.today);
}

TEST(MakePlan, ArchivesByDaysOfEvidenceNotByTheCalendar) {
  Planning planning(FakeImage().add({"alpha"}));
  planning.thresholds.archive_after = 20;
  planning.previous = planning.make().plan;
  // Two months on, and nothing was collected since.
  heard_every_day(planning.snapshot);
  planning.today += 60;
  planning.snapshot.window.last = planning.today;
  auto plan = planning.make().plan;
  EXPECT_EQ(plan.verdicts[0].verdict, Verdict::kCold);
  EXPECT_EQ(plan.verdicts[0].unused_since, kToday);
  EXPECT_EQ(plan.verdicts[0].unused_days, 0u);
  // Three weeks with sessions on some days, looked at twice: each day counts once.
  for (std::int32_t day = 1; day <= 19; ++day)
    planning.snapshot.heard_days.push_back({.day = planning.today + day, .sessions = 3});
  for (const int days : {10, 20}) {
    planning.previous = plan;
    planning.snapshot.window.last = planning.today + days;
    auto& heard = planning.snapshot.heard_days;
    const auto all = heard;
    std::erase_if(heard, [&](const usage::DayCount& one) { return one.day > planning.snapshot.window.last; });
    plan = planning.make().plan;
    heard = all;
  }
  EXPECT_EQ(plan.verdicts[0].unused_days, 19u);
  EXPECT_EQ(plan.verdicts[0].verdict, Verdict::kCold);
  planning.previous = plan;
  planning.snapshot.window.last += 1;
  planning.snapshot.heard_days.push_back({.day = planning.snapshot.window.last, .sessions = 1});
  EXPECT_EQ(planning.make().plan.verdicts[0].verdict, Verdict::kArchived);
}

TEST(MakePlan, AnExtraThatIsWholeKeepsFromBeingArchivedAndNoMore) {
  Planning planning(FakeImage()
                        .add({.name = "app", .metadata = "Provides-Extra: x\nRequires-Dist: more; extra == \"x\"\n"})
                        .add({"more"})
                        .add({"alone"}));
  used(planning.snapshot, "app", 500, 200);
  planning.thresholds.archive_after = 1;
  planning.previous = planning.make().plan;
  planning.next_day();
  EXPECT_EQ(planning.verdicts(), "alone archived, app hot, more cold");
}

TEST(MakePlan, AnExtraThatIsPartlyInstalledKeepsWhatIsThereFromBeingArchived) {
  Planning planning(FakeImage()
                        .add({.name = "frames",
                              .metadata = "Provides-Extra: excel\nRequires-Dist: sheets; extra == \"excel\"\n"
                                          "Requires-Dist: not-there; extra == \"excel\"\n"})
                        .add({"sheets"})
                        .add({"alone"}));
  used(planning.snapshot, "frames", 500, 200);
  planning.thresholds.archive_after = 1;
  planning.previous = planning.make().plan;
  planning.next_day();
  EXPECT_EQ(planning.verdicts(), "alone archived, frames hot, sheets cold");
  EXPECT_EQ(first_reason(planning, "sheets"),
            "extra|frames|needs sheets for its extra [excel], which may have been asked for");
  // Where what has the extra goes too, nobody asks for it.
  used(planning.snapshot, "frames", 0, 0);
  planning.previous = std::nullopt;
  planning.previous = planning.make().plan;
  planning.next_day();
  EXPECT_EQ(planning.verdicts(), "alone archived, frames archived, sheets archived");
  EXPECT_THAT(explain(planning.make().plan, "sheets"), testing::Not(testing::Contains(HasSubstr("[excel]"))));
}

TEST(MakePlan, ThePlanIsTheSameEachTime) {
  Planning planning(FakeImage().add({.name = "app", .metadata = "Requires-Dist: lib\n"}).add({"lib"}).add({"rare"}));
  used(planning.snapshot, "app", 500, 200);
  const auto text = to_json(planning.make().plan);
  EXPECT_EQ(text, to_json(planning.make().plan));
  EXPECT_EQ(text, to_json(parse_plan(text, "plan")));
}

TEST(MakePlan, RefusesThresholdsThatMakeNoSense) {
  Planning planning(FakeImage().add({"alpha"}));
  planning.thresholds.max_rate = 0;
  EXPECT_THROW(planning.make(), UsageError);
  planning.thresholds = {};
  planning.thresholds.cold_below_users = 0;
  EXPECT_THROW(planning.make(), UsageError);
}

}  // namespace
}  // namespace varve::prune
