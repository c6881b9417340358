#include "analyzer/notebooks/notebook_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varve::notebooks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kSmall = R"({
 "cells": [
  {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "import this_is_text"]},
  {"cell_type": "code", "execution_count": 1, "id": "a", "metadata": {"vscode": {"languageId": "python"}}, "outputs": [
    {"data": {"text/plain": ["{\"cells\": [\"] }\""]}, "output_type": "execute_result"}], "source": ["import numpy\n",
     "x = \"\u00e9\ud83d\ude00\""]},
  {"cell_type": "raw", "metadata": {}, "source": "import raw"},
  {"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [], "source": "import pandas"}
 ],
 "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
  "language_info": {"name": "python", "version": "3.11"},
  "widgets": {"state": [[[{}]]]}},
 "nbformat": 4,
 "nbformat_minor": 5
}
)";

struct Reading {
  std::vector<std::string> cells;
  std::vector<std::uint32_t> numbers;
  std::vector<std::string> languages;
  std::vector<std::string> problems;
  int nbformat = 0;
  std::uint32_t code_cells = 0;
  bool is_notebook = false;
  std::string language;
  bool operator==(const Reading&) const = default;
};

Reading read(std::string_view document, const NotebookLimits& limits = {}) {
  const auto notebook = NotebookReader(limits).read(std::string(document));
  Reading reading{.cells = {},
                  .numbers = {},
                  .languages = {},
                  .problems = notebook.problems,
                  .nbformat = notebook.nbformat,
                  .code_cells = notebook.code_cells,
                  .is_notebook = notebook.is_notebook,
                  .language = notebook.kernel_language};
  for (const auto& cell : notebook.cells) {
    reading.cells.emplace_back(notebook.text_of(cell));
    reading.numbers.push_back(cell.number);
    reading.languages.push_back(cell.language);
  }
  return reading;
}

std::string code_cell(std::string_view source) {
  return fmt::format(R"({{"cells": [{{"cell_type": "code", "source": {}}}], "nbformat": 4}})", source);
}

TEST(NotebookReader, KeepsCodeCellsAndNothingElse) {
  const auto reading = read(kSmall);
  EXPECT_THAT(reading.cells, ElementsAre("import numpy\nx = \"\u00e9\U0001F600\"", "import pandas"));
  EXPECT_THAT(reading.numbers, ElementsAre(1, 2));
  EXPECT_THAT(reading.languages, ElementsAre("python", ""));
  EXPECT_EQ(reading.nbformat, 4);
  EXPECT_EQ(reading.language, "python");
  EXPECT_THAT(reading.problems, IsEmpty());
}

TEST(NotebookReader, TruncatedAnywhereItKeepsWhatWasWholeAndSaysSo) {
  const auto whole = read(kSmall);
  const auto end = kSmall.rfind('}');
  for (std::size_t size = 0; size <= end; ++size) {
    const auto part = read(kSmall.substr(0, size));
    ASSERT_EQ(part.problems.size(), 1u) << size;
    EXPECT_THAT(part.problems[0], size < 1 ? HasSubstr("empty") : HasSubstr("breaks off")) << size;
    ASSERT_LE(part.cells.size(), whole.cells.size());
    EXPECT_TRUE(std::equal(part.cells.begin(), part.cells.end(), whole.cells.begin())) << size;
  }
  EXPECT_THAT(read(kSmall.substr(0, kSmall.find("\"raw\""))).cells, ElementsAre(whole.cells[0]));
}

TEST(NotebookReader, ReadsFormatsTwoAndThree) {
  const auto three = read(R"({"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0, "worksheets": [
    {"cells": [{"cell_type": "heading", "level": 1, "source": "x"}, {"cell_type": "code", "input": ["a\n", "b"],
      "language": "python", "outputs": []}]},
    {"cells": [{"cell_type": "code", "input": "c", "language": "julia"}]}]})");
  EXPECT_THAT(three.cells, ElementsAre("a\nb", "c"));
  EXPECT_THAT(three.numbers, ElementsAre(1, 2));
  EXPECT_THAT(three.languages, ElementsAre("python", "julia"));
  EXPECT_EQ(three.nbformat, 3);
  // Format 2 splits without line ends.
  const auto two =
      read(R"({"nbformat": 2, "worksheets": [{"cells": [{"cell_type": "code", "input": ["import a", "", "import b"]}, )"
           R"({"cell_type": "code", "input": ["", "c"]}]}]})");
  EXPECT_THAT(two.cells, ElementsAre("import a\n\nimport b", "\nc"));
}

TEST(NotebookReader, JoinsTheLinesOfFormatFourAsTheyStand) {
  EXPECT_THAT(read(code_cell(R"(["a", "b\n", "c"])")).cells, ElementsAre("ab\nc"));
  EXPECT_THAT(read(code_cell(R"([])")).cells, ElementsAre(""));
  EXPECT_THAT(read(code_cell(R"(null)")).cells, ElementsAre(""));
}

TEST(NotebookReader, DecodesEscapesAndReplacesLoneSurrogates) {
  EXPECT_THAT(read(code_cell(R"("\"\\\/\b\f\n\r\t\u0041\u20AC")")).cells, ElementsAre("\"\\/\b\f\n\r\tA\u20ac"));
  EXPECT_THAT(read(code_cell(R"("a\ud83dz\ude00\ud83d\u0041")")).cells, ElementsAre("a\ufffdz\ufffd\ufffdA"));
  EXPECT_THAT(read(code_cell(R"("\u0000")")).cells, ElementsAre(std::string(1, '\0')));
  const auto odd = read(code_cell(R"("\q\u12")"));
  EXPECT_THAT(odd.cells, ElementsAre("qu12"));
  EXPECT_THAT(odd.problems, ElementsAre(HasSubstr("escapes")));
}

TEST(NotebookReader, ReplacesBytesThatAreNotUtf8AndSaysSo) {
  const auto reading = read(code_cell("\"x\xff\xc3(\xed\xa0\x80\""));
  EXPECT_THAT(reading.cells, ElementsAre("x\ufffd\ufffd(\ufffd\ufffd\ufffd"));
  EXPECT_THAT(reading.problems, ElementsAre(HasSubstr("not UTF-8")));
  // Two cells whose borders cut one character are each wrong, though together they are right.
  const auto cut = read(
      "{\"cells\": [{\"cell_type\": \"code\", \"source\": \"\xc3\"}, {\"cell_type\": \"code\", \"source\": "
      "\"\xa9\"}]}");
  EXPECT_THAT(cut.cells, ElementsAre("\ufffd", "\ufffd"));
}

TEST(NotebookReader, TakesRawControlCharactersAndByteOrderMark) {
  EXPECT_THAT(read(code_cell(std::string("\"a\n\tb\0c\"", 8))).cells, ElementsAre("a\n\tb c"));
  const auto marked = read("\xef\xbb\xbf\r\n" + code_cell("\"x\""));
  EXPECT_THAT(marked.cells, ElementsAre("x"));
  EXPECT_THAT(marked.problems, IsEmpty());
}

TEST(NotebookReader, KnowsTheTypeOfACellWhereverItStands) {
  EXPECT_THAT(
      read(R"({"cells": [{"source": "a", "cell_type": "code"}, {"source": "b", "cell_type": "markdown"}, {"source": )"
           R"("c"}, {"cell_type": "code"}]})")
          .cells,
      ElementsAre("a", ""));
  EXPECT_THAT(read(R"({"cells": [{"cell\u005ftype": "c\u006fde", "s\u006furce": "a"}]})").cells, ElementsAre("a"));
}

TEST(NotebookReader, TheLastOfEqualKeysCounts) {
  EXPECT_THAT(read(R"({"cells": [{"cell_type": "code", "source": "a", "source": "b"}]})").cells, ElementsAre("b"));
  const auto twice =
      read(R"({"cells": [{"cell_type": "code", "source": "a"}], "cells": [{"cell_type": "code", "source": "b"}]})");
  EXPECT_THAT(twice.cells, ElementsAre("b"));
  EXPECT_THAT(twice.numbers, ElementsAre(1));
}

TEST(NotebookReader, ReadsLanguagesOfSingleCells) {
  const auto reading = read(R"json({"cells": [
    {"cell_type": "code", "metadata": {"kernel": "R"}, "source": "library(a)"},
    {"cell_type": "code", "metadata": {"dotnet_interactive": {"language": "csharp"}}, "source": "x"},
    {"cell_type": "code", "metadata": {"polyglot_notebook": {"kernelName": "fsharp"}, "vscode": [1]}, "source": "x"},
    {"cell_type": "code", "metadata": {"vscode": {"languageId": "R"}}, "source": "x"},
    {"cell_type": "code", "metadata": {"vscode": {"languageId": "plaintext"}}, "source": "x"}]})json");
  EXPECT_THAT(reading.languages, ElementsAre("R", "csharp", "fsharp", "r", ""));
}

TEST(NotebookReader, SaysWhatOtherFilesAre) {
  const std::pair<std::string, const char*> kCases[] = {
      {"", "empty file"},
      {" \n ", "empty file"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git-lfs pointer"},
      {"\n<!DOCTYPE html>", "web page"},
      {"\x1f\x8b\x08", "gzip"},
      {std::string("\xff\xfe{\0", 4), "UTF-16"},
      {"import numpy", "no JSON document"},
      {"[1, 2]", "no JSON document"},
      {"{\"a\": 1}", "without a list of cells"},
      {"{\"cells\": {}}", "without a list of cells"},
  };
  for (const auto& [text, expected] : kCases) {
    const auto reading = read(text);
    EXPECT_FALSE(reading.is_notebook) << text;
    EXPECT_THAT(reading.problems, ElementsAre(HasSubstr(expected))) << text;
  }
}

TEST(NotebookReader, BrokenJsonKeepsWhatCameBefore) {
  const std::string begin = R"({"cells": [{"cell_type": "code", "source": "a"}, )";
  for (const auto* rest : {"]}", "{\"cell_type\" \"code\"}]}", "{\"cell_type\": }]}", "{\"x\": [}]}]}",
                           "{cell_type: 1}]}", "{\"a\": 1 \"b\": 2}]}"}) {
    const auto reading = read(begin + rest);
    EXPECT_THAT(reading.cells, ElementsAre("a")) << rest;
    EXPECT_THAT(reading.problems, ElementsAre(HasSubstr("broken JSON at byte"))) << rest;
  }
  EXPECT_THAT(read(code_cell("\"a\"") + " {}").problems, ElementsAre(HasSubstr("behind the end")));
  EXPECT_THAT(read("<<<<<<< HEAD\n" + code_cell("\"a\"")).problems, ElementsAre(HasSubstr("web page or XML")));
}

TEST(NotebookReader, KeepsWhatStandsBeforeNestingBombs) {
  for (const auto* bracket : {"[", "{\"a\":"}) {
    std::string bomb = R"({"cells": [{"cell_type": "code", "source": "a"}, {"cell_type": "code", "outputs": )";
    for (int i = 0; i < 1'000'000; ++i) bomb += bracket;
    const auto reading = read(bomb);
    EXPECT_THAT(reading.cells, ElementsAre("a"));
    EXPECT_THAT(reading.problems, ElementsAre(HasSubstr("breaks off")));
  }
  const std::string deep = R"({"cells": [], "x": )" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_THAT(read(deep).problems, IsEmpty());
}

TEST(NotebookReader, LeavesOutCellsBeyondTheLimitsAndCountsThem) {
  const std::string document = R"({"cells": [{"cell_type": "code", "source": ")" + std::string(2000, 'x') +
                               R"("}, {"cell_type": "code", "source": "a"},
    {"source": ")" + std::string(2000, 'x') +
                               R"(", "cell_type": "markdown"}]})";
  const auto reading = read(document, {.max_cell_bytes = 1000});
  EXPECT_THAT(reading.cells, ElementsAre("a"));
  EXPECT_THAT(reading.numbers, ElementsAre(2));
  EXPECT_EQ(reading.code_cells, 2u);
  EXPECT_THAT(reading.problems, ElementsAre(HasSubstr("code cell 1: larger than 1000 bytes")));
  EXPECT_THAT(read(document, {.max_code_bytes = 1999}).problems, ElementsAre(HasSubstr("code cell 1")));
}

TEST(NotebookReader, StartsAnewWithEachDocument) {
  NotebookReader reader;
  EXPECT_EQ(reader.read("{\"cells\": [{\"cell_type\": \"code\", \"source\": \"a\"").cells.size(), 1u);
  const auto second = reader.read(std::string(kSmall));
  EXPECT_EQ(second.cells.size(), 2u);
  EXPECT_THAT(second.problems, IsEmpty());
}

}  // namespace
}  // namespace varve::notebooks
