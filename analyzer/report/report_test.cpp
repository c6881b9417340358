#include "analyzer/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "analyzer/report/bound.h"
#include "analyzer/report/rows.h"
#include "tests/report/generated_snapshot.h"

namespace varve::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

using report_test::kToday;

// A fleet of two images: the newer has what `package` is called for.
struct Fleet {
  usage::Snapshot snapshot;

  Fleet() {
    snapshot.distributions.reserve(50);  // what add() returns stays where it is
    snapshot.window = {.first = kToday - 89, .last = kToday};
    add_image("v2", 100);
    add_image("v1", 200);
  }
  usage::ImageFacts& add_image(const std::string& label, std::uint64_t heard) {
    usage::ImageFacts image;
    image.digest = digest_of(label);
    image.label = label;
    image.has_inventory = true;
    image.heard = heard;
    image.launched = heard * 2;
    snapshot.images.push_back(image);
    return snapshot.images.back();
  }
  usage::DistributionUse& add(const std::string& name, std::uint64_t sessions,
                              std::vector<std::string> images = {"v2", "v1"}) {
    usage::DistributionUse use;
    use.name = use.display_name = name;
    use.sessions = use.direct = use.static_sessions = sessions;
    for (const auto& label : images) {
      usage::PackageFacts package;
      package.image = digest_of(label);
      package.source = "pip";
      package.bytes = 1000;
      package.compressed_bytes = 300;
      package.imports = {name};
      use.packages.push_back(package);
    }
    snapshot.distributions.push_back(use);
    return snapshot.distributions.back();
  }
  Report report(std::uint64_t min_sessions = 5) {
    return make_report(std::move(snapshot), {.today = kToday, .min_sessions = min_sessions});
  }
};

const Row& row_of(const Report& report, const std::string& name) {
  for (const auto& row : report.rows) {
    if (row.use->name == name) return row;
  }
  throw std::out_of_range(name);
}

std::vector<std::string> unused_names(const Report& report) {
  std::vector<std::string> names;
  for (const auto i : report.unused) names.push_back(report.rows[i].use->name);
  return names;
}

// scipy.stats.beta.ppf(0.95, x + 1, n - x), SciPy 1.10.1.
TEST(Bound, AgreesWithSciPysClopperPearson) {
  struct Case {
    std::uint64_t uses, sessions;
    double bound;
  };
  for (const auto& [uses, sessions, bound] :
       {Case{1, 2, 0.97467943448089633}, Case{1, 10, 0.39416330243650466}, Case{1, 100, 0.046559811453538935},
        Case{3, 50, 0.14783717636418123}, Case{5, 6, 0.9914875553891529}, Case{10, 1000, 0.016903175120562504},
        Case{499, 1000, 0.52548440313540978}, Case{1, 1000000, 4.7438556382142339e-06},
        Case{5000, 1000000, 0.0051175840516408614}, Case{999999, 1000000, 0.99999994870670694},
        Case{123456, 10000000, 0.012403190602364471}, Case{9, 10, 0.99488380310817626}}) {
    EXPECT_NEAR(*upper_bound(uses, sessions), bound, bound * 1e-8) << uses << " of " << sessions;
  }
}

// scipy.special.betainc(a, b, x), SciPy 1.10.1.
TEST(Bound, IncompleteBetaAgreesWithSciPy) {
  struct Case {
    double a, b, x, value;
  };
  for (const auto& [a, b, x, value] :
       {Case{1, 1, 0.29999999999999999, 0.29999999999999999}, Case{2, 3, 0.10000000000000001, 0.052300000000000013},
        Case{0.5, 0.5, 0.90000000000000002, 0.79516723530086619}, Case{10, 1, 0.5, 0.0009765625},
        Case{5, 200, 0.029999999999999999, 0.73483175033491066}, Case{200, 5, 0.96999999999999997, 0.26516824966509128},
        Case{1000, 1000, 0.5, 0.49999999999995753}, Case{1000, 1000, 0.46999999999999997, 0.0036225247314433363},
        Case{100000, 1000000, 0.090499999999999997, 0.067640575941988079},
        Case{2, 1000000, 9.9999999999999995e-07, 0.26424148560046762}, Case{1.5, 2.5, 0.999, 0.99999993560162059}}) {
    EXPECT_NEAR(regularized_incomplete_beta(a, b, x), value, value * 1e-9) << a << ' ' << b << ' ' << x;
  }
}

TEST(Bound, IsThreeInNForNoneAndAbsentWithoutSessions) {
  EXPECT_EQ(upper_bound(0, 0), std::nullopt);
  EXPECT_DOUBLE_EQ(*upper_bound(0, 1), 1.0);
  EXPECT_DOUBLE_EQ(*upper_bound(0, 300), 0.01);
  EXPECT_DOUBLE_EQ(*upper_bound(300, 300), 1.0);
  EXPECT_DOUBLE_EQ(*upper_bound(301, 300), 1.0);
}

TEST(Bound, FallsWithMoreSessionsAndRisesWithMoreUses) {
  for (const std::uint64_t sessions : {2u, 10u, 1000u, 1'000'000u}) {
    for (const std::uint64_t uses : {1u, 2u, 5u}) {
      if (uses + 1 >= sessions) continue;
      EXPECT_LT(*upper_bound(uses, sessions), *upper_bound(uses + 1, sessions));
      EXPECT_GT(*upper_bound(uses, sessions), *upper_bound(uses, sessions * 2));
      EXPECT_GT(*upper_bound(uses, sessions), double(uses) / double(sessions));
    }
  }
}

TEST(Rows, CountOnlySessionsOfImagesThatHaveTheDistribution) {
  Fleet fleet;
  fleet.add("everywhere", 30);
  fleet.add("new", 30, {"v2"});
  const auto report = fleet.report();
  EXPECT_EQ(row_of(report, "everywhere").exposed_sessions, 300u);
  EXPECT_DOUBLE_EQ(*row_of(report, "everywhere").share, 0.1);
  EXPECT_DOUBLE_EQ(*row_of(report, "new").share, 0.3);
}

TEST(Rows, AnImageWithTwoRecordsOfOneDistributionIsCountedOnce) {
  Fleet fleet;
  fleet.add("twice", 0, {"v2", "v2"});
  EXPECT_EQ(row_of(fleet.report(), "twice").exposed_sessions, 100u);
}

TEST(Rows, NoDataIsNeitherZeroNorUnused) {
  Fleet fleet;
  fleet.add_image("v0", 0);
  fleet.add("unheard", 0, {"v0"});
  fleet.add("unused", 0);
  const auto report = fleet.report();
  const auto& unheard = row_of(report, "unheard");
  EXPECT_TRUE(unheard.no_data);
  EXPECT_FALSE(unheard.unused);
  EXPECT_EQ(unheard.share, std::nullopt);
  EXPECT_EQ(unheard.bound, std::nullopt);
  EXPECT_EQ(unheard.last_30, std::nullopt);
  EXPECT_THAT(unused_names(report), ElementsAre("unused"));

  const auto json = report_json(report);
  for (const auto& package : json["packages"]) {
    EXPECT_EQ(package["sessions"].is_null(), package["name"] == "unheard");
    EXPECT_EQ(package["bound"].is_null(), package["name"] == "unheard");
  }
  std::ostringstream table, csv;
  write_table(report, table);
  EXPECT_THAT(table.str(), testing::ContainsRegex("unheard +no data"));
  write_csv(report, csv);
  EXPECT_THAT(csv.str(), HasSubstr("\r\nunheard,,pip,1,no,yes,no,,0,,,,,,,"));
}

TEST(Rows, WhatHasNothingToImportIsSeenOnlyThroughFileAccesses) {
  for (const bool files_collected : {false, true}) {
    Fleet fleet;
    auto& debian = fleet.add("libfoo", 0);
    debian.packages[0].source = debian.packages[1].source = "dpkg";
    auto& data = fleet.add("only-data", 0);
    data.packages[0].imports.clear();
    data.packages[1].imports.clear();
    if (files_collected) fleet.add("other", 0).file_sessions = 3;
    const auto report = fleet.report();
    for (const auto* name : {"libfoo", "only-data"}) {
      EXPECT_EQ(row_of(report, name).no_data, !files_collected) << name;
      EXPECT_EQ(row_of(report, name).unused, files_collected) << name;
    }
  }
}

TEST(Rows, AnyKindOfUseKeepsADistributionOutOfTheUnused) {
  Fleet fleet;
  fleet.add("files", 0).file_sessions = 1;
  fleet.add("program", 0).exec_sessions = 1;
  fleet.add("named", 0).static_sessions = 1;
  fleet.add("imported", 1);
  fleet.add("nothing", 0);
  EXPECT_THAT(unused_names(fleet.report()), ElementsAre("nothing"));
}

TEST(Rows, WaysOfUseAddUpToSessionsInEachForm) {
  Fleet fleet;
  auto& numpy = fleet.add("numpy", 60);
  numpy.direct = 20;
  numpy.transitive_only = 30;
  numpy.files_only = 15;
  const auto report = fleet.report();
  EXPECT_DOUBLE_EQ(*row_of(report, "numpy").share, 75.0 / 300);
  const auto package = report_json(report)["packages"][0];
  EXPECT_EQ(package["sessions"], 75);
  EXPECT_EQ(package["direct"], 20);
  EXPECT_EQ(package["transitive"], 30);
  EXPECT_EQ(package["named_only"], 10);
  EXPECT_EQ(package["files_only"], 15);
  std::ostringstream table, csv, page;
  write_table(report, table);
  EXPECT_THAT(table.str(), testing::ContainsRegex("numpy +75 +20 +30 +10 +15 +25 %"));
  write_csv(report, csv);
  EXPECT_THAT(csv.str(), HasSubstr(",20,30,10,15,"));
  write_html(report, page);
  EXPECT_THAT(page.str(), HasSubstr("75 of 300 sessions: 20 directly, 30 only through others, 10 only named in cells, "
                                    "15 only its files"));
}

TEST(Rows, OfTheOperatingSystemStandApart) {
  Fleet fleet;
  fleet.add("numpy", 3);
  fleet.add("pandas", 0);
  for (const auto* name : {"bash", "libc6"})
    for (auto& package : fleet.add(name, 0).packages) package.source = "dpkg";
  fleet.snapshot.distributions[2].files_only = fleet.snapshot.distributions[2].file_sessions = 100;
  fleet.add("brought-along", 5, {});
  const auto report = fleet.report();
  const auto text = [&](const TableOptions& options) {
    std::ostringstream table;
    write_table(report, table, options);
    return table.str();
  };
  EXPECT_THAT(text({}), testing::ContainsRegex("NAME .*\n(.*\n)*numpy(.*\n)*OPERATING SYSTEM .*\nbash +100"));
  EXPECT_THAT(text({.unused_only = true}),
              testing::ContainsRegex("NEVER USED .*\npandas(.*\n)*OPERATING SYSTEM .*\nlibc6"));
  EXPECT_THAT(text({.sources = {"pip"}}),
              AllOf(HasSubstr("numpy"), HasSubstr("brought-along"), Not(HasSubstr("bash"))));
  EXPECT_THAT(text({.sources = {"dpkg"}}), AllOf(HasSubstr("bash"), Not(HasSubstr("numpy"))));
  EXPECT_THAT(text({.sources = {"pip", "conda", "dpkg"}}),
              AllOf(HasSubstr("bash"), HasSubstr("numpy"), Not(HasSubstr("OPERATING SYSTEM"))));
  EXPECT_THAT(text({.could_go_only = true}), AllOf(HasSubstr("pandas"), Not(HasSubstr("libc6 "))));
  EXPECT_EQ(report_json(report, {.could_go_only = true})["packages"].size(), 1u);
  EXPECT_EQ(report_json(report, {.sources = {"dpkg"}})["packages"].size(), 2u);
  EXPECT_EQ(report_json(report)["packages"].size(), 5u);
}

TEST(Rows, CountAsPackagesDo) {
  Fleet fleet;
  fleet.add("both", 0, {"v2", "v2"}).packages[1].source = "dpkg";  // of pip, and of the operating system
  fleet.add("twice", 0, {"v2", "v2"});                             // in two folders
  fleet.add("old", 0, {"v1"});
  const auto report = fleet.report();
  EXPECT_EQ(report.packages, 3u);
  EXPECT_EQ(report.known, 3u);
  EXPECT_EQ(report_json(report)["unused"]["packages"], 3);
}

TEST(Rows, UseOnAnImageWithoutItIsUseButNotMoreThanAll) {
  Fleet fleet;
  fleet.add("brought", 150, {"v2"});  // 50 of these sessions were on v1
  const auto report = fleet.report();
  EXPECT_DOUBLE_EQ(*row_of(report, "brought").share, 1.0);
  EXPECT_DOUBLE_EQ(*row_of(report, "brought").bound, 1.0);
}

TEST(Rows, WindowsLongerThanAskedForAreAbsent) {
  Fleet fleet;
  fleet.add("numpy", 30).days = {{kToday - 200, 100}, {kToday - 89, 10}, {kToday - 30, 5},
                                 {kToday - 29, 5},    {kToday, 10},      {kToday + 1, 100}};
  const auto report = fleet.report();
  EXPECT_EQ(row_of(report, "numpy").last_30, 15u);
  EXPECT_EQ(row_of(report, "numpy").last_90, 30u);
  EXPECT_EQ(row_of(report, "numpy").last_365, std::nullopt);
}

TEST(Trend, ComparesHalvesOfTheWindowPerHeardSession) {
  struct Case {
    const char* name;
    std::uint64_t first, second;  // uses
    std::uint64_t heard_first, heard_second;
    Trend kind;
    std::optional<double> trend;
  };
  const Case cases[] = {
      {"the same rate", 100, 100, 1000, 1000, Trend::kSteady, 1.0},
      {"the fleet doubled, and so did its use", 100, 200, 1000, 2000, Trend::kSteady, 1.0},
      {"the fleet doubled, its use did not", 100, 100, 1000, 2000, Trend::kFalling, 0.5},
      {"more", 100, 200, 1000, 1000, Trend::kRising, 2.0},
      {"more, but so few that chance would do", 2, 4, 1000, 1000, Trend::kSteady, 2.0},
      {"new", 0, 40, 1000, 1000, Trend::kNew, std::nullopt},
      {"new, but one swallow", 0, 1, 1000, 1000, Trend::kSteady, std::nullopt},
      {"gone", 40, 0, 1000, 1000, Trend::kGone, 0.0},
      {"never", 0, 0, 1000, 1000, Trend::kNone, std::nullopt},
      {"nothing heard in the first half", 0, 40, 0, 1000, Trend::kUnknown, std::nullopt},
  };
  for (const auto& c : cases) {
    Fleet fleet;
    fleet.snapshot.heard_days = {{kToday - 80, c.heard_first}, {kToday, c.heard_second}};
    fleet.add("x", c.first + c.second).days = {{kToday - 80, c.first}, {kToday, c.second}};
    const auto report = fleet.report();
    const auto& row = row_of(report, "x");
    EXPECT_EQ(trend_name(row.trend_kind), trend_name(c.kind)) << c.name;
    ASSERT_EQ(row.trend.has_value(), c.trend.has_value()) << c.name;
    if (c.trend) {
      EXPECT_NEAR(*row.trend, *c.trend, 1e-9) << c.name;
    }
  }
}

TEST(Trend, IsPerDayWhereTheFleetIsNotKnownByDay) {
  Fleet fleet;
  fleet.add("x", 300).days = {{kToday - 80, 100}, {kToday, 200}};
  EXPECT_NEAR(*row_of(fleet.report(), "x").trend, 2.0, 1e-9);
}

TEST(Unused, ComesByBytesAndSaysWhatHoldsIt) {
  Fleet fleet;
  fleet.add("used", 10).packages[0].required = {"needed", "missing"};
  fleet.add("needed", 0).packages[0].required = {"needed-by-needed"};
  fleet.add("needed-by-needed", 0).packages[0].bytes = 3000;
  fleet.add("free", 0).packages[0].bytes = 2000;
  fleet.add("free-too", 0).packages[0].required = {"free"};
  fleet.add("in-notebooks", 0).notebooks = 4;
  fleet.add("nvidia-cufft-cu12", 0).packages[0].bytes = 9000;
  fleet.add("only-old", 0, {"v1"});
  const auto report = fleet.report();
  EXPECT_THAT(unused_names(report),
              ElementsAre("nvidia-cufft-cu12", "needed-by-needed", "free", "free-too", "in-notebooks", "needed"));
  EXPECT_THAT(row_of(report, "needed").needed_by, ElementsAre("used"));
  EXPECT_THAT(row_of(report, "needed-by-needed").needed_by, ElementsAre("needed"));
  EXPECT_THAT(row_of(report, "free").needed_by, IsEmpty());  // what needs it is unused itself
  EXPECT_TRUE(row_of(report, "nvidia-cufft-cu12").cuda);
  EXPECT_EQ(report.unused_all.distributions, 6u);
  EXPECT_EQ(report.unused_all.bytes, 9000u + 3000 + 2000 + 3 * 1000);
  EXPECT_EQ(report.free.distributions, 2u);
  EXPECT_EQ(report.free.bytes, 3000u);
  EXPECT_EQ(report.free.compressed_bytes, 600u);
}

TEST(Unused, WhatStaysHoldsWhatItNeeds) {
  Fleet fleet;
  fleet.add("numba", 0).notebooks = 3;
  fleet.snapshot.distributions.back().packages[0].required = {"llvmlite"};
  fleet.add("llvmlite", 0);
  fleet.add("nvidia-cusolver", 0).packages[0].required = {"helper-of-cuda"};
  fleet.add("helper-of-cuda", 0);
  auto& system = fleet.add("coreutils", 0).packages;
  for (auto& package : system) package.source = "dpkg";
  system[0].required = {"libacl1"};
  fleet.add("libacl1", 0);
  const auto report = fleet.report();
  EXPECT_THAT(row_of(report, "llvmlite").needed_by, ElementsAre("numba"));
  EXPECT_THAT(row_of(report, "helper-of-cuda").needed_by, ElementsAre("nvidia-cusolver"));
  EXPECT_THAT(row_of(report, "libacl1").needed_by, ElementsAre("coreutils"));
  EXPECT_TRUE(row_of(report, "coreutils").system);
  EXPECT_EQ(report.free.distributions, 0u);
}

TEST(Unused, IsSaidOfTheImageAskedFor) {
  Fleet fleet;
  fleet.snapshot.image = digest_of("v1");
  fleet.add("only-old", 0, {"v1"});
  fleet.add("only-new", 0, {"v2"});
  const auto report = fleet.report();
  EXPECT_EQ(report.snapshot.images[*report.current].label, "v1");
  EXPECT_THAT(unused_names(report), ElementsAre("only-old"));
}

TEST(Unused, TheCurrentImageIsTheNewestWhosePackagesAreKnown) {
  Fleet fleet;
  fleet.snapshot.images[0].has_inventory = false;
  fleet.add("x", 0, {"v1"});
  const auto report = fleet.report();
  EXPECT_EQ(report.snapshot.images[*report.current].label, "v1");
}

TEST(Unused, AnUnknownImageHasNoUnused) {
  Fleet fleet;
  for (auto& image : fleet.snapshot.images) image.has_inventory = false;
  const auto report = fleet.report();
  EXPECT_EQ(report.current, std::nullopt);
  EXPECT_THAT(report.unused, IsEmpty());
  std::ostringstream table, page;
  write_table(report, table);
  EXPECT_THAT(table.str(), HasSubstr("No image's packages are known yet"));
  write_html(report, page);
  EXPECT_THAT(page.str(), HasSubstr("No image&#39;s packages are known yet"));
}

TEST(Disagreements, AreSaidInWords) {
  Fleet fleet;
  fleet.snapshot.notebooks_scanned = fleet.snapshot.notebooks_distinct = 800;
  auto& only_notebooks = fleet.add("only-notebooks", 0);
  only_notebooks.notebooks = 41;
  only_notebooks.notebooks_optional = 3;
  auto& only_through = fleet.add("only-through", 300);
  only_through.direct = only_through.static_sessions = 0;
  only_through.importers = {{"pandas", 280}};
  auto& many = fleet.add("through-many", 300);
  many.direct = many.static_sessions = 0;
  many.importers = {{"a", 6}, {"pandas", 280}, {"seaborn", 30}};
  fleet.add("files", 0).file_sessions = 30;
  fleet.add("program", 0).exec_sessions = 1;
  auto& own = fleet.add("own-copy", 100);
  own.notebooks = 10;
  own.session_copy = 88;
  own.image_copy = 12;
  fleet.add("agreed", 100).notebooks = 300;
  fleet.add("too-rare-for-notebooks", 1);
  const auto report = fleet.report();
  EXPECT_THAT(row_of(report, "only-notebooks").disagreements,
              ElementsAre("41 notebooks import it (3 of them only inside try or if), no session did"));
  EXPECT_THAT(row_of(report, "only-through").disagreements,
              ElementsAre("used by 300 sessions, named in no scanned notebook: only through pandas"));
  EXPECT_THAT(
      row_of(report, "through-many").disagreements,
      ElementsAre("used by 300 sessions, named in no scanned notebook: only through pandas, seaborn and 1 more"));
  EXPECT_THAT(row_of(report, "files").disagreements,
              ElementsAre(HasSubstr("opened in 30 sessions, no import was seen")));
  EXPECT_THAT(row_of(report, "program").disagreements,
              ElementsAre("its programs ran in 1 session, no import was seen"));
  EXPECT_THAT(row_of(report, "own-copy").disagreements,
              ElementsAre("88 of 100 sessions loaded a copy of their own, not the image's"));
  EXPECT_THAT(row_of(report, "agreed").disagreements, IsEmpty());
  EXPECT_THAT(row_of(report, "too-rare-for-notebooks").disagreements, IsEmpty());
}

TEST(Disagreements, NothingIsSaidAgainstNotebooksThatWereNotScanned) {
  Fleet fleet;
  fleet.add("numpy", 300);
  EXPECT_THAT(row_of(fleet.report(), "numpy").disagreements, IsEmpty());
}

TEST(Privacy, NamesThatNoImageHasAreKeptBackBelowTheThreshold) {
  Fleet fleet;
  fleet.add("company-secret", 4, {});
  fleet.add("popular", 5, {});
  fleet.add("numpy", 1).importers = {{"company-secret", 1}, {"popular", 5}, {"numpy", 1}};
  fleet.snapshot.reinstalls = {{"company-secret", "", "1", "new", 4, {}}, {"numpy", "1", "2", "upgrade", 1, {}}};
  auto copy = fleet.snapshot;
  const auto report = fleet.report(5);
  EXPECT_EQ(report.rows.size(), 2u);
  EXPECT_EQ(report.hidden_names, 1u);
  for (const auto& written : {report_json(report).dump(), [&] {
                                std::ostringstream all;
                                write_table(report, all, {.limit = 0});
                                write_csv(report, all);
                                write_html(report, all);
                                return all.str();
                              }()}) {
    EXPECT_THAT(written, Not(HasSubstr("company-secret")));
    EXPECT_THAT(written, HasSubstr("popular"));
  }
  const auto open = make_report(std::move(copy), {.today = kToday, .min_sessions = 1});
  EXPECT_EQ(row_of(open, "company-secret").use->sessions, 4u);
}

TEST(Report, SurvivesBeingMoved) {
  Fleet fleet;
  fleet.add("numpy", 3);
  auto report = fleet.report();
  const auto moved = std::move(report);
  EXPECT_EQ(row_of(moved, "numpy").use, &moved.snapshot.distributions[0]);
}

TEST(Report, SessionsWithoutAnImageAreSaidToBeSo) {
  Fleet fleet;
  fleet.add_image("", 7).digest = Digest();
  fleet.snapshot.images.back().has_inventory = false;
  fleet.add("numpy", 3);
  const auto report = fleet.report();
  std::ostringstream table;
  write_table(report, table);
  EXPECT_THAT(table.str(), HasSubstr("7 sessions did not say on which image they ran"));
  EXPECT_THAT(table.str(), Not(HasSubstr("Packages not known")));
  EXPECT_EQ(report_json(report)["coverage"]["images"][2]["image"], nullptr);
}

TEST(Report, SumsCoverageOverImages) {
  Fleet fleet;
  fleet.snapshot.images[0].launched = 40;  // fewer than heard: somebody does not count launches
  const auto report = fleet.report();
  EXPECT_EQ(report.heard, 300u);
  EXPECT_EQ(report.launched, 100u + 400u);
  const auto json = report_json(report);
  EXPECT_DOUBLE_EQ(json["coverage"]["share"], 0.6);
  EXPECT_DOUBLE_EQ(json["coverage"]["images"][0]["share"], 1.0);
}

TEST(Report, JsonHasWhatTheCommandLinePromises) {
  const auto report = make_report(report_test::fleet_snapshot({.distributions = 50, .images = 3, .days = 90}), kToday);
  const auto json = report_json(report);
  ASSERT_EQ(json["packages"].size(), 50u);
  for (const auto& package : json["packages"]) {
    for (const auto* field :
         {"name", "sessions", "users", "direct", "transitive", "trend", "last_used", "bytes", "bound"})
      EXPECT_TRUE(package.contains(field)) << field;
  }
  EXPECT_EQ(json["packages"][0]["name"], "numpy");
  EXPECT_EQ(json["window"]["last"], "2026-11-21");
  EXPECT_EQ(json["coverage"]["heard"], report.heard);
}

}  // namespace
}  // namespace varve::report
