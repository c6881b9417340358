#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "analyzer/report/report.h"
#include "analyzer/report/text.h"
#include "core/base/text/safe_text.h"
#include "tests/report/generated_snapshot.h"

namespace varve::report {
namespace {

using report_test::kToday;
using testing::HasSubstr;
using testing::Not;

Report fleet() { return make_report(report_test::fleet_snapshot({}), kToday); }
Report hostile() { return make_report(report_test::hostile_snapshot(), kToday); }

template <typename Write>
std::string written(Write&& write) {
  std::ostringstream out;
  write(out);
  return out.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A strict reader of RFC 4180: throws where the grammar is broken.
std::vector<std::vector<std::string>> read_csv(std::string_view text) {
  std::vector<std::vector<std::string>> records(1, {""});
  bool quoted = false, was_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto& field = records.back().back();
    const char c = text[i];
    if (quoted) {
      if (c != '"')
        field += c;
      else if (i + 1 < text.size() && text[i + 1] == '"')
        field += text[++i];
      else
        quoted = false, was_quoted = true;
    } else if (c == ',') {
      records.back().emplace_back();
      was_quoted = false;
    } else if (c == '\r') {
      if (++i == text.size() || text[i] != '\n') throw std::runtime_error("CR without LF");
      records.push_back({""});
      was_quoted = false;
    } else if (c == '"' && field.empty() && !was_quoted) {
      quoted = true;
    } else if (c == '"' || c == '\n' || was_quoted) {
      throw std::runtime_error("a character that must be quoted");
    } else {
      field += c;
    }
  }
  if (quoted || records.back() != std::vector<std::string>{""}) throw std::runtime_error("no line end at the end");
  records.pop_back();
  return records;
}

TEST(Csv, IsRfc4180WithTheSameFieldsInEachRecord) {
  for (const auto& report : {fleet(), hostile()}) {
    const auto records = read_csv(written([&](auto& out) { write_csv(report, out); }));
    ASSERT_EQ(records.size(), report.rows.size() + 1);
    for (const auto& record : records) EXPECT_EQ(record.size(), records[0].size());
    EXPECT_EQ(records[1][0].substr(0, 3), visible(report.rows[0].use->name).substr(0, 3));
  }
}

TEST(Csv, NoFieldIsAFormula) {
  const auto report = hostile();
  std::size_t escaped = 0;
  for (const auto& record : read_csv(written([&](auto& out) { write_csv(report, out); }))) {
    for (const auto& field : record) {
      if (field.empty()) continue;
      EXPECT_EQ(std::string_view("=+-@\t\r").find(field[0]), std::string_view::npos) << field;
      escaped += field[0] == '\'' ? 1 : 0;
    }
  }
  EXPECT_GE(escaped, 4u);
}

TEST(Csv, NumbersAreWrittenSoThatTheyCanBeReadBack) {
  const auto report = fleet();
  const auto records = read_csv(written([&](auto& out) { write_csv(report, out); }));
  const auto column = [&](std::string_view name) {
    return std::size_t(std::find(records[0].begin(), records[0].end(), name) - records[0].begin());
  };
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const auto& row = report.rows[i];
    const auto& record = records[i + 1];
    EXPECT_EQ(record[column("sessions")], row.no_data ? "" : std::to_string(row.use->sessions));
    if (row.bound) {
      EXPECT_DOUBLE_EQ(std::stod(record[column("bound")]), *row.bound);
    } else {
      EXPECT_EQ(record[column("bound")], "");
    }
  }
}

TEST(Table, FitsOneHundredColumnsWhateverTheNames) {
  for (const auto& report : {fleet(), hostile()}) {
    for (const auto& options : {TableOptions{.limit = 0}, TableOptions{.unused_only = true, .limit = 0}}) {
      const auto text = written([&](auto& out) { write_table(report, out, options); });
      for (const auto& line : lines_of(text)) {
        EXPECT_LE(characters(line), 100u) << line;
        EXPECT_EQ(visible(line, 1000), line);
      }
    }
  }
}

TEST(Table, LimitsRowsAndSaysHowManyMoreThereAre) {
  const auto report = fleet();
  const auto text = written([&](auto& out) { write_table(report, out, {.limit = 10}); });
  EXPECT_THAT(text, HasSubstr("… 277 more: --all\n"));
  EXPECT_THAT(text, HasSubstr("… 3 more: --all\n")) << "of the operating system";
  EXPECT_THAT(text, HasSubstr("numpy"));
  EXPECT_THAT(written([&](auto& out) { write_table(report, out, {.limit = 0}); }), Not(HasSubstr("more: --all")));
}

TEST(Table, SortsByWhatIsAskedFor) {
  const auto report = fleet();
  const auto first_name = [&](SortBy sort) {
    const auto lines = lines_of(written([&](auto& out) { write_table(report, out, {.sort = sort, .limit = 1}); }));
    const auto heading =
        std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with("NAME"); });
    return std::next(heading)->substr(0, std::next(heading)->find(' '));
  };
  EXPECT_EQ(first_name(SortBy::kSessions), "numpy");
  EXPECT_EQ(first_name(SortBy::kBytes), "tensorflow");
  EXPECT_EQ(first_name(SortBy::kName), "accelerate");
}

TEST(Table, TheSummaryNamesCoverageAndWhatCouldGo) {
  const auto text = written([&](auto& out) { write_table(fleet(), out); });
  EXPECT_THAT(text, testing::ContainsRegex("We have heard of [0-9]+ % of sessions"));
  EXPECT_THAT(text, testing::ContainsRegex("[0-9]+ of the [0-9]+ distributions of v143 were used in no session"));
  EXPECT_THAT(text, HasSubstr("Imports that failed: what to add"));
  EXPECT_THAT(text, HasSubstr("2.1.0 → 1.26.4 (downgrade)"));
  EXPECT_THAT(text, HasSubstr("with a GPU never touched it"));
}

TEST(Json, SurvivesNamesThatAreNotUtf8) {
  const auto text = report_json(hostile()).dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  EXPECT_EQ(nlohmann::json::parse(text)["packages"].size(), hostile().rows.size());
}

TEST(Page, CarriesNoNameAsMarkup) {
  const auto page = written([&](auto& out) { write_html(hostile(), out); });
  EXPECT_THAT(page, Not(HasSubstr("<script>window")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("'onmouseover='")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;window.pwned=1&lt;/script&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("\xE2\x80\xAE")));
  EXPECT_LT(page.size(), 300'000u);  // a name of 100,000 characters is cut
}

TEST(Page, OfAThousandDistributionsAndAYearFitsIntoAMail) {
  const auto report =
      make_report(report_test::fleet_snapshot({.distributions = 1000, .images = 12, .days = 365}), kToday);
  EXPECT_LT(written([&](auto& out) { write_html(report, out); }).size(), 1'500'000u);
}

TEST(Page, IsTheSameForTheSameSnapshot) {
  EXPECT_EQ(written([&](auto& out) { write_html(fleet(), out); }),
            written([&](auto& out) { write_html(fleet(), out); }));
}

}  // namespace
}  // namespace varve::report
