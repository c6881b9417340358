#include "analyzer/usage/spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::usage {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kStart =
    R"({"t":"start","v":1,"session":"0123456789abcdef0123456789abcdef","process":"0123456789abcdef",)"
    R"("day":"2026-11-21","writer":"recorder 1"})";

template <typename Record>
Record parsed(std::string_view line) {
  return std::get<Record>(parse_spool_line(line).what);
}

TEST(SpoolRecord, ReadsAStartWithEverything) {
  const auto start = parsed<StartRecord>(
      R"({"t":"start","v":1,"session":"0123456789abcdef0123456789abcdef","process":"0123456789abcdef",)"
      R"("parent":"fedcba9876543210","day":"2024-02-29",)"
      R"("image":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","writer":"recorder 1",)"
      R"("user":"00000000000000000000000000000001","python":"3.11.2","platform":"linux-x86_64","main":"kernel",)"
      R"("at":0})");
  EXPECT_EQ(start.parent, "fedcba9876543210");
  EXPECT_EQ(start.day, 19782);
  EXPECT_EQ(start.image, digest_of(""));
  EXPECT_EQ(start.user, "00000000000000000000000000000001");
  EXPECT_EQ(start.main, "kernel");
}

TEST(SpoolRecord, TakesAbsentFieldsOfAStartAsUnknown) {
  const auto start = parsed<StartRecord>(kStart);
  EXPECT_EQ(start.parent, "");
  EXPECT_FALSE(start.image.has_value());
  EXPECT_EQ(start.user, "");
}

TEST(SpoolRecord, ReadsEachKind) {
  const auto record = parse_spool_line(
      R"({"t":"import","m":"google.cloud.storage","how":"transitive","by":"pandas.io","site":"session","d":"X",)"
      R"("ver":"1","at":30})");
  EXPECT_EQ(record.at_seconds, 30U);
  const auto& import = std::get<ImportRecord>(record.what);
  EXPECT_EQ(import.module, "google.cloud.storage");
  EXPECT_EQ(import.how, Directness::kTransitive);
  EXPECT_EQ(import.by, "pandas.io");
  EXPECT_EQ(import.copy, Copy::kSession);
  EXPECT_EQ(import.distribution, "X");
  EXPECT_EQ(parsed<FailedRecord>(R"({"t":"failed","m":"a.b","how":"direct"})").module, "a.b");
  EXPECT_EQ(parsed<InstallRecord>(R"({"t":"install","d":"a","to":"2","why":"new","tool":"pip"})").why,
            InstallReason::kNew);
  const auto file = parsed<FileRecord>(R"({"t":"file","p":"/usr/bin/ls","op":"exec"})");
  EXPECT_EQ(file.path, "usr/bin/ls");
  EXPECT_TRUE(file.executed);
  const auto gpu = parsed<GpuRecord>(R"({"t":"gpu","present":true,"models":["A","B"],"driver":"550","used":false})");
  EXPECT_TRUE(gpu.present);
  EXPECT_EQ(gpu.models, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(parsed<BeatRecord>(R"({"t":"beat","cells":3,"busy":5,"idle":7,"gpu_used":true})").idle_seconds, 7U);
  EXPECT_FALSE(parsed<EndRecord>(R"({"t":"end","exit":"error"})").ok);
  EXPECT_EQ(parsed<FullRecord>(R"({"t":"full","dropped":9})").dropped, 9U);
  EXPECT_NO_THROW(parsed<LaunchRecord>(R"({"t":"launch"})"));
}

TEST(SpoolRecord, ToleratesWhatANewerWriterAdds) {
  EXPECT_EQ(parsed<UnknownRecord>(R"({"t":"energy","at":{"x":[1,2,{"y":-3.5}]}})").kind, "energy");
  EXPECT_EQ(
      parsed<FailedRecord>(
          R"({"t":"failed","new":{"deep":[[["x"]]]},"list":["a"],"n":-1,"f":1.5,"z":null,"m":"a","how":"static"})")
          .module,
      "a");
}

struct BadLine {
  const char* name;
  std::string line;
};

class SpoolRecordRefuses : public testing::TestWithParam<BadLine> {};

TEST_P(SpoolRecordRefuses, WithoutQuotingIt) {
  try {
    parse_spool_line(GetParam().line);
    FAIL() << "it was taken";
  } catch (const CorruptData& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("SECRET")));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
  }
}

std::string with(const std::string& line, const std::string& from, const std::string& to) {
  auto changed = line;
  changed.replace(changed.find(from), from.size(), to);
  return changed;
}

INSTANTIATE_TEST_SUITE_P(
    Lines, SpoolRecordRefuses,
    testing::Values(
        BadLine{"empty", ""}, BadLine{"no_json", "SECRET"}, BadLine{"array", R"(["SECRET"])"},
        BadLine{"text", R"("SECRET")"}, BadLine{"number", "1"}, BadLine{"cut", R"({"t":"failed","m":"SECRET)"},
        BadLine{"two_objects", R"({"t":"launch"}{"t":"launch"})"}, BadLine{"no_kind", R"({"m":"SECRET"})"},
        BadLine{"kind_is_number", R"({"t":1})"}, BadLine{"field_twice", R"({"t":"launch","t":"end"})"},
        BadLine{"not_utf8", std::string(R"({"t":"failed","how":"direct","m":"SECRET)") + "\xff\"}"},
        BadLine{"surrogate_alone", R"({"t":"failed","how":"direct","m":"SECRET\ud800"})"},
        BadLine{"too_long", R"({"t":"failed","how":"direct","m":"a","SECRET":")" + std::string(4096, 'x') + "\"}"},
        BadLine{"module_is_a_path", R"({"t":"failed","how":"direct","m":"/home/SECRET"})"},
        BadLine{"module_with_zero", R"({"t":"failed","how":"direct","m":"SECRET\u0000"})"},
        BadLine{"module_with_line_end", R"({"t":"failed","how":"direct","m":"SECRET\n"})"},
        BadLine{"module_ends_with_dot", R"({"t":"failed","how":"direct","m":"SECRET."})"},
        BadLine{"module_too_long", R"({"t":"failed","how":"direct","m":"SECRET)" + std::string(600, 'x') + "\"}"},
        BadLine{"module_missing", R"({"t":"import","how":"direct"})"},
        BadLine{"how_unknown", R"({"t":"failed","m":"a","how":"SECRET"})"},
        BadLine{"how_missing", R"({"t":"failed","m":"a"})"},
        BadLine{"site_unknown", R"({"t":"import","m":"a","how":"direct","site":"SECRET"})"},
        BadLine{"at_negative", R"({"t":"failed","m":"a","how":"direct","at":-1})"},
        BadLine{"at_fraction", R"({"t":"failed","m":"a","how":"direct","at":1.5})"},
        BadLine{"at_text", R"({"t":"failed","m":"a","how":"direct","at":"1"})"},
        BadLine{"at_huge", R"({"t":"failed","m":"a","how":"direct","at":18446744073709551615})"},
        BadLine{"path_relative", R"({"t":"file","p":"SECRET","op":"open"})"},
        BadLine{"path_with_zero", R"({"t":"file","p":"/SECRET\u0000","op":"open"})"},
        BadLine{"models_of_numbers", R"({"t":"gpu","present":true,"models":[1]})"},
        BadLine{"models_nested", R"({"t":"gpu","present":true,"models":["a",["SECRET"]]})"},
        BadLine{
            "models_too_many",
            R"({"t":"gpu","models":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})"},
        BadLine{"present_is_number", R"({"t":"gpu","present":1})"},
        BadLine{"start_of_version_2", with(kStart, "\"v\":1", "\"v\":2")},
        BadLine{"start_without_session", with(kStart, "\"session\"", "\"SECRET\"")},
        BadLine{"session_too_short", with(kStart, "0123456789abcdef0123456789abcdef", "SECRET")},
        BadLine{"session_upper_case",
                with(kStart, "0123456789abcdef0123456789abcdef", "0123456789ABCDEF0123456789ABCDEF")},
        BadLine{"no_such_day", with(kStart, "2026-11-21", "2026-02-30")},
        BadLine{"day_before_1970", with(kStart, "2026", "1969")},
        BadLine{"nesting_bomb", R"({"t":"launch","SECRET":)" + std::string(4000, '[')}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(SpoolRecord, IsWrittenSoThatItIsReadAgain) {
  StartRecord start;
  start.session = std::string(32, 'a');
  start.process = std::string(16, 'b');
  start.parent = std::string(16, 'c');
  start.day = 20778;
  start.image = digest_of("x");
  start.writer = "recorder 1";
  start.user = std::string(32, 'd');
  start.python = "3.11.2";
  start.platform = "linux-x86_64";
  start.main = "script";
  const std::vector<SpoolRecord> records{
      {0, start},
      {0, LaunchRecord{}},
      {10, ImportRecord{.module = "naïve.модуль",
                        .how = Directness::kTransitive,
                        .by = "b",
                        .copy = Copy::kSession,
                        .distribution = "d",
                        .version = "1"}},
      {20, FailedRecord{.module = "x", .how = Directness::kStatic}},
      {20, InstallRecord{.distribution = "d", .from = "1", .to = "2", .why = InstallReason::kUpgrade, .tool = "pip"}},
      {30, FileRecord{.path = "usr/lib/\"quoted\"\nname", .executed = true}},
      {30, GpuRecord{.present = true, .used = true, .models = {"NVIDIA A"}, .driver = "550.1"}},
      {60, BeatRecord{.cells = 1, .busy_seconds = 2, .idle_seconds = 3, .gpu_used = true}},
      {70, EndRecord{.ok = false}},
      {70, FullRecord{.dropped = 4}},
      {0, UnknownRecord{.kind = "later"}},
  };
  for (const auto& record : records) {
    const auto line = spool_line(record);
    ASSERT_EQ(line.back(), '\n');
    const auto again = parse_spool_line(std::string_view(line).substr(0, line.size() - 1));
    EXPECT_EQ(again.what.index(), record.what.index());
    EXPECT_EQ(again.at_seconds, record.at_seconds);
    EXPECT_EQ(spool_line(again), line);
  }
}

TEST(SpoolRecord, IsNotWrittenWhereItCouldNotBeRead) {
  EXPECT_THROW(spool_line({0, FileRecord{.path = std::string(5000, 'x')}}), CorruptData);
  EXPECT_THROW(spool_line({0, FileRecord{.path = "\xff"}}), CorruptData);
}

}  // namespace
}  // namespace varve::usage
