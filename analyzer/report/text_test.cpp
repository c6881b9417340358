#include "analyzer/report/text.h"

#include <gtest/gtest.h>

#include "analyzer/report/html.h"
#include "analyzer/report/treemap.h"

namespace varve::report {
namespace {

TEST(Text, NumbersAreRoundedButNeverToWhatTheyAreNot) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(999), "999");
  EXPECT_EQ(number_text(1000), "1,000");
  EXPECT_EQ(number_text(18446744073709551615u), "18,446,744,073,709,551,615");
  EXPECT_EQ(short_number(9'999), "9,999");
  EXPECT_EQ(short_number(10'000), "10.0k");
  EXPECT_EQ(short_number(99'949), "99.9k");
  EXPECT_EQ(short_number(99'950), "100k");
  EXPECT_EQ(short_number(999'499), "999k");
  EXPECT_EQ(short_number(999'500), "1.0M");
  EXPECT_EQ(percent_text(0), "0 %");
  EXPECT_EQ(percent_text(1e-9), "< 0.01 %");
  EXPECT_EQ(percent_text(0.0005), "0.05 %");
  EXPECT_EQ(percent_text(0.0123), "1.2 %");
  EXPECT_EQ(percent_text(0.62), "62 %");
  EXPECT_EQ(percent_text(0.99999), "99.9 %");
  EXPECT_EQ(percent_text(1), "100 %");
  EXPECT_EQ(hours_text(0), "0 h");
  EXPECT_EQ(hours_text(60), "< 0.1 h");
  EXPECT_EQ(hours_text(5400), "1.5 h");
  EXPECT_EQ(hours_text(36'000'000), "10,000 h");
}

TEST(Text, DaysAreDatesAndNeverIsEmpty) {
  EXPECT_EQ(last_seen_text(0), "");
  EXPECT_EQ(last_seen_text(20'778), "2026-11-21");
  EXPECT_EQ(last_seen_text(-1), "1969-12-31");
  EXPECT_EQ(last_seen_text(std::numeric_limits<std::int32_t>::max()), "");
}

TEST(Html, EscapesForContentAndAttributes) {
  EXPECT_EQ(html("<a href=\"x\" b='y'>&amp;"), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;");
}

TEST(Html, FillsEachSlotOnceAndLooksNotAgainAtWhatItPutIn) {
  EXPECT_EQ(fill("a{{x}}b{{y}}c", {{"x", "{{y}}"}, {"y", "2"}}), "a{{y}}b2c");
  EXPECT_EQ(fill("no slots", {}), "no slots");
  EXPECT_THROW(fill("{{unknown}}", {}), std::logic_error);
}

// openssl dgst -sha256 -binary | base64
TEST(Html, HashesBlocksAsPoliciesNameThem) {
  EXPECT_EQ(policy_hash(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
  EXPECT_EQ(policy_hash("alert(1)"), "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='");
}

TEST(Html, BothWaysToTheDarkThemeHaveTheSameTokens) {
  std::vector<std::string> blocks;
  const auto css = embedded_file(page::page_files(), "report.css");
  for (auto at = css.find("--paper:"); at != std::string_view::npos; at = css.find("--paper:", at + 1)) {
    std::string block;
    for (const char c : css.substr(at, css.find('}', at) - at)) {
      if (c != ' ' && c != '\n') block += c;
    }
    blocks.push_back(block);
  }
  ASSERT_EQ(blocks.size(), 3u);  // light, dark by system, dark by choice
  EXPECT_EQ(blocks[1], blocks[2]);
  EXPECT_NE(blocks[0], blocks[1]);
}

TEST(Treemap, FillsTheBoxInProportion) {
  const std::vector<double> values{500, 433, 100, 70, 40, 22, 22, 10, 3, 1, 0.01};
  double total = 0;
  for (const auto value : values) total += value;
  const Box into{10, 20, 600, 400};
  const auto boxes = squarify(values, into);
  ASSERT_EQ(boxes.size(), values.size());
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const auto& box = boxes[i];
    EXPECT_NEAR(box.width * box.height, values[i] / total * 600 * 400, 1e-6);
    EXPECT_GE(box.x, into.x - 1e-6);
    EXPECT_GE(box.y, into.y - 1e-6);
    EXPECT_LE(box.x + box.width, into.x + into.width + 1e-6);
    EXPECT_LE(box.y + box.height, into.y + into.height + 1e-6);
    for (std::size_t k = 0; k < i; ++k) {
      const double across = std::min(box.x + box.width, boxes[k].x + boxes[k].width) - std::max(box.x, boxes[k].x);
      const double down = std::min(box.y + box.height, boxes[k].y + boxes[k].height) - std::max(box.y, boxes[k].y);
      EXPECT_FALSE(across > 1e-6 && down > 1e-6) << i << " over " << k;
    }
  }
  EXPECT_LT(boxes[0].width / boxes[0].height, 2);
}

TEST(Treemap, HasABoxForEachValueEvenWhereThereIsNoRoom) {
  EXPECT_EQ(squarify({3, 2, 1}, {0, 0, 0, 10}).size(), 3u);
  EXPECT_TRUE(squarify({}, {0, 0, 10, 10}).empty());
}

}  // namespace
}  // namespace varve::report
