#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "analyzer/report/report.h"
#include "analyzer/report/text.h"
#include "tests/report/generated_snapshot.h"

namespace varve::report {
namespace {

using report_test::kToday;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

usage::Explanation of_bs4() {
  usage::Explanation explanation;
  explanation.asked = "bs4";
  explanation.distributions = {"beautifulsoup4"};
  usage::ImageFacts image;
  image.digest = digest_of("v143");
  image.label = "v143";
  image.has_inventory = true;
  image.heard = 1000;
  explanation.images = {image};
  usage::DistributionUse use;
  use.name = "beautifulsoup4";
  use.display_name = "beautifulsoup4";
  use.packages = {{.image = image.digest,
                   .version = "4.12.2",
                   .source = "pip",
                   .files = 84,
                   .bytes = 1'300'000,
                   .compressed_bytes = 300'000,
                   .layers = {13},
                   .imports = {"bs4"},
                   .required = {"soupsieve"},
                   .gpu = false}};
  use.sessions = 120;
  use.direct = 100;
  use.transitive_only = 20;
  use.image_copy = 120;
  use.importers = {{"pandas", 20}};
  use.users = {30, 55};
  use.first_used = kToday - 80;
  use.last_used = kToday - 2;
  use.days = {{kToday - 80, 20}, {kToday - 2, 100}};
  use.notebooks = 12;
  explanation.use = {use};
  explanation.failed = {{"bs4.builder._lxml", 3, {2, 2}, kToday - 9, "lxml"}};
  explanation.evidence = {{"notebook", 0, std::nullopt, 1, "cell 3 line 2 of scrape.ipynb (optional)"},
                          {"install", kToday - 4, image.digest, 7, "4.12.2 -> 4.13.0 (upgrade, pip)"},
                          {"file", kToday - 3, image.digest, 2, "usr/lib/python3/bs4/py.typed"}};
  return explanation;
}

// Lines joined, so that a sentence is found wherever it was broken.
std::string told(const usage::Explanation& explanation) {
  std::ostringstream out;
  write_explanation(explanation, out);
  std::string text = out.str();
  std::size_t longest = 0, start = 0;
  for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
    longest = std::max(longest, characters(std::string_view(text).substr(start, end - start)));
    start = end + 1;
  }
  EXPECT_LE(longest, 100u);
  std::string joined;
  for (const char c : text) {
    if (c != '\n' && c != ' ')
      joined += c;
    else if (!joined.empty() && joined.back() != ' ')
      joined += ' ';
  }
  return joined;
}

TEST(Explanation, TellsWhereWhoHowMuchAndHowSure) {
  EXPECT_THAT(
      told(of_bs4()),
      AllOf(
          HasSubstr("bs4 stands for the distribution beautifulsoup4."), HasSubstr("Imported as bs4. Needs soupsieve."),
          HasSubstr("In v143: version 4.12.2 (pip), 1.30 MB in 84 files, 300.0 kB compressed, layer 13."),
          HasSubstr(
              "Used in 120 of 1,000 sessions heard on images that have it: 12 %, at most 14 % (95 %), by 30–55 users."),
          HasSubstr("Imported by the user's own code in 100 sessions, only by other libraries in 20."),
          HasSubstr("Imported by pandas (20)."), HasSubstr("By month: 2026-09 20 ########## 2026-11 100 ####"),
          HasSubstr("cell 3 line 2 of scrape.ipynb (optional)"), HasSubstr("v143 7 × 4.12.2 -> 4.13.0 (upgrade, pip)"),
          HasSubstr("bs4.builder._lxml was imported in vain in 3 sessions"), HasSubstr("usr/lib/python3/bs4/py.typed"),
          HasSubstr("Looked at: 1 image (v143), 1,000 sessions heard, and all notebooks scanned.")));
}

TEST(Explanation, SaysWhatWasLookedAtWhereNothingIsKnown) {
  usage::Explanation explanation;
  explanation.asked = "no-such-thing";
  EXPECT_THAT(told(explanation),
              AllOf(HasSubstr("Nothing is known of no-such-thing"), HasSubstr("knows no image and no session yet")));
  explanation.images = of_bs4().images;
  EXPECT_THAT(told(explanation), HasSubstr("Looked at: 1 image (v143), 1,000 sessions heard"));
}

TEST(Explanation, ZeroHasABoundAndNoDataIsNotZero) {
  auto explanation = of_bs4();
  auto& use = explanation.use[0];
  usage::DistributionUse unused;
  unused.name = unused.display_name = use.name;
  unused.packages = use.packages;
  use = unused;
  EXPECT_THAT(
      told(explanation),
      HasSubstr(
          "Used in none of the 1,000 sessions heard on images that have it: at most 0.3 % of sessions use it (95 %)."));
  explanation.images[0].heard = 0;
  EXPECT_THAT(told(explanation), AllOf(HasSubstr("No data: no session was heard on an image that has it."),
                                       Not(HasSubstr("Used in none"))));
}

TEST(Explanation, ANameOfSeveralDistributionsTellsOfEach) {
  auto explanation = of_bs4();
  explanation.asked = "cv2";
  explanation.distributions = {"opencv-python", "opencv-python-headless"};
  explanation.use.push_back(explanation.use[0]);
  explanation.use[0].name = explanation.use[0].display_name = "opencv-python";
  explanation.use[1].name = explanation.use[1].display_name = "opencv-python-headless";
  EXPECT_THAT(told(explanation), HasSubstr("cv2 stands for 2 distributions: opencv-python, opencv-python-headless."));
}

TEST(Explanation, OfWhatSessionsBroughtWithThem) {
  auto explanation = of_bs4();
  explanation.use[0].packages.clear();
  EXPECT_THAT(told(explanation),
              AllOf(HasSubstr("No known image has it"), HasSubstr("Used in 120 sessions, by 30–55 users.")));
}

TEST(Explanation, LongEvidenceIsCutAndJsonHasAll) {
  auto explanation = of_bs4();
  explanation.evidence.assign(500, {"notebook", kToday, std::nullopt, 1, "cell 1 line 1 of a.ipynb"});
  EXPECT_THAT(told(explanation), HasSubstr("… 480 more: --json"));
  EXPECT_EQ(explanation_json(explanation)["evidence"].size(), 500u);
}

TEST(Explanation, HostileNamesStayOnTheirLines) {
  const auto snapshot = report_test::hostile_snapshot();
  usage::Explanation explanation;
  explanation.images = snapshot.images;
  explanation.use = snapshot.distributions;
  explanation.failed = snapshot.failed;
  for (const auto& use : snapshot.distributions) {
    explanation.asked = use.name;
    explanation.distributions.push_back(use.name);
    explanation.evidence.push_back({"session", kToday, std::nullopt, 2, use.name});
  }
  std::ostringstream out;
  write_explanation(explanation, out);
  EXPECT_THAT(out.str(), AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\xE2\x80\xAE")), Not(HasSubstr("\r"))));
  EXPECT_NO_THROW(nlohmann::json::parse(
      explanation_json(explanation).dump(0, ' ', false, nlohmann::json::error_handler_t::replace)));
}

}  // namespace
}  // namespace varve::report
