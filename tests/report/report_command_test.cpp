// `varve usage report` and `varve usage explain` over a database filled as `collect` fills it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/usage/usage_test_support.h"

namespace varve {
namespace {

using nlohmann::json;
using test::Outcome;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

constexpr const char* kWindow = "2026-06-01..2026-06-30";

class ReportCommand : public testing::Test {
 protected:
  // Ten sessions of image 1, of which one was only launched: all import pandas, pandas imports numpy, three name bs4.
  void SetUp() override {
    const auto database = usage::open_database(file("usage.db"));
    database->put_inventory(
        usage::inventory_of(1, {{.name = "numpy", .modules = {"numpy"}},
                                {.name = "pandas", .modules = {"pandas"}},
                                {.name = "beautifulsoup4", .modules = {"bs4"}},
                                {.name = "google-cloud-storage", .modules = {"google.cloud.storage"}},
                                {.name = "scikit-learn", .modules = {"sklearn"}},
                                {.name = "opencv-python", .modules = {"cv2"}}}),
        "v7");
    for (unsigned session = 1; session <= 9; ++session) {
      auto start = usage::start_record(session, session, "2026-06-15");
      start.user = usage::user_hash(session);
      usage::SpoolWriterForTests spool(folder_.path() / "spool", start);
      spool.add(usage::import_record("pandas"));
      spool.add(usage::import_record("numpy", usage::Directness::kTransitive, "pandas"));
      if (session <= 3) spool.add(usage::import_record("bs4"));
      if (session <= 2) spool.add({.at_seconds = 20, .what = usage::FailedRecord{.module = "sklearn"}});
    }
    auto launch = usage::start_record(10, 10, "2026-06-15");
    launch.writer = "run 0.1.0";
    usage::SpoolWriterForTests(folder_.path() / "spool", launch).add({.at_seconds = 0, .what = usage::LaunchRecord{}});
    database->collect({folder_.path() / "spool"}, {}, CancelFlag());
  }

  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome report(std::vector<std::string> words) const { return usage("report", std::move(words)); }
  Outcome explain(const std::string& name, std::vector<std::string> words = {}) const {
    words.insert(words.begin(), name);
    return usage("explain", std::move(words));
  }
  static std::string content_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  test::TempDir folder_;

 private:
  Outcome usage(const std::string& command, std::vector<std::string> words) const {
    std::vector<std::string> all{"usage", command, "--db", file("usage.db"), "--window", kWindow};
    all.insert(all.end(), words.begin(), words.end());
    return test::varve(all);
  }
};

TEST_F(ReportCommand, JsonCountsSessionsUsersAndCoverage) {
  const auto outcome = report({"--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto document = json::parse(outcome.out);
  std::map<std::string, json> packages;
  for (const auto& package : document["packages"]) packages[package["name"]] = package;
  EXPECT_EQ(packages.size(), 6u);
  EXPECT_EQ(packages["pandas"]["sessions"], 9);
  EXPECT_EQ(packages["pandas"]["direct"], 9);
  EXPECT_EQ(packages["pandas"]["users"], 9);
  EXPECT_EQ(packages["numpy"]["transitive"], 9);
  EXPECT_EQ(packages["numpy"]["importers"], json({{"pandas", 9}}));
  EXPECT_EQ(packages["beautifulsoup4"]["sessions"], 3);
  EXPECT_EQ(packages["beautifulsoup4"]["last_used"], "2026-06-15");
  EXPECT_EQ(packages["opencv-python"]["sessions"], 0);
  EXPECT_EQ(packages["opencv-python"]["unused"], true);
  EXPECT_DOUBLE_EQ(packages["opencv-python"]["bound"], 3.0 / 9);
  EXPECT_EQ(packages["opencv-python"]["last_used"], nullptr);
  EXPECT_EQ(document["coverage"]["heard"], 9);
  EXPECT_EQ(document["coverage"]["launched"], 10);
}

TEST_F(ReportCommand, TheTableNamesWhatNobodyUsed) {
  const auto outcome = report({"--unused"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("v7, 2026-06-01 to 2026-06-30 (30 days)"),
                                 HasSubstr("We have heard of 90 % of sessions: 9 of 10 launched"),
                                 HasSubstr("opencv-python"), HasSubstr("scikit-learn"), Not(HasSubstr("pandas"))));
}

TEST_F(ReportCommand, WritesPageAndRecordsWholeAndSaysSo) {
  const auto outcome = report({"--html", file("page.html"), "--csv", file("use.csv"), "--image", "v7"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("3 of the 6 distributions of v7"),
                                 HasSubstr("written: " + file("page.html")), HasSubstr("written: " + file("use.csv"))));
  EXPECT_THAT(content_of(file("page.html")), AllOf(testing::StartsWith("<!doctype html>"),
                                                   testing::EndsWith("</html>\n"), HasSubstr("beautifulsoup4")));
  EXPECT_THAT(content_of(file("use.csv")), HasSubstr("\r\npandas,1.0,pip,"));
}

TEST_F(ReportCommand, AFileThatCannotBeWrittenLeavesNothingBehind) {
  const auto outcome = report({"--html", file("no/such/folder/page.html")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("page.html"));
  EXPECT_FALSE(std::filesystem::exists(file("no")));
}

TEST_F(ReportCommand, AnImageIsFoundByLabelAndByDigest) {
  for (const auto& image : {std::string("v7"), usage::image_digest(1).to_string()}) {
    const auto outcome = report({"--json", "--image", image});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(json::parse(outcome.out)["image"], usage::image_digest(1).to_string());
  }
  for (const auto& image : {std::string("oci:" + file("nothing")), usage::image_digest(2).to_string()}) {
    const auto unknown = report({"--image", image});
    EXPECT_EQ(unknown.status, 1);
    EXPECT_THAT(unknown.err, HasSubstr("it knows v7"));
  }
}

TEST_F(ReportCommand, ADatabaseThatIsNotThereIsNotMade) {
  const auto outcome = test::varve({"usage", "report", "--db", file("other.db")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("there is no such usage database"));
  EXPECT_FALSE(std::filesystem::exists(file("other.db")));
}

TEST_F(ReportCommand, RefusesAWindowThatIsNone) {
  const auto outcome = test::varve({"usage", "report", "--db", file("usage.db"), "--window", "ninety"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("ninety"));
}

TEST_F(ReportCommand, OutsideOfTheWindowThereIsNoDataAndNoZero) {
  const auto outcome =
      test::varve({"usage", "report", "--db", file("usage.db"), "--window", "2025-01-01..2025-01-31", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto report = json::parse(outcome.out);
  ASSERT_FALSE(report["packages"].empty());
  for (const auto& package : report["packages"]) {
    EXPECT_EQ(package["no_data"], true) << package["name"];
    EXPECT_EQ(package["sessions"], nullptr) << package["name"];
  }
}

TEST_F(ReportCommand, ExplainsByDistributionAndByImport) {
  for (const auto* name : {"bs4", "beautifulsoup4", "BeautifulSoup4"}) {
    const auto outcome = explain(name);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("\nbeautifulsoup4\n"), HasSubstr("Used in 3 of 9 sessions heard")))
        << name;
  }
  EXPECT_THAT(explain("google.cloud.storage").out,
              AllOf(HasSubstr("google-cloud-storage"), HasSubstr("Used in none of the 9 sessions heard")));
  EXPECT_THAT(explain("cv2").out, HasSubstr("opencv-python"));
  EXPECT_THAT(explain("sklearn").out,
              AllOf(HasSubstr("scikit-learn"), HasSubstr("sklearn was imported in vain in 2 sessions")));
  EXPECT_THAT(explain("numpy").out, HasSubstr("Imported by pandas (9)"));
}

TEST_F(ReportCommand, ExplainsWhatWasLookedAtWhereNothingIsKnown) {
  const auto outcome = explain("no-such-thing");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("Nothing is known of no-such-thing"), HasSubstr("Looked at: 1 image (v7)")));
  const auto document = json::parse(explain("no-such-thing", {"--json"}).out);
  EXPECT_TRUE(document["use"].empty());
  EXPECT_EQ(document["images"][0]["heard"], 9);
}

}  // namespace
}  // namespace varve
