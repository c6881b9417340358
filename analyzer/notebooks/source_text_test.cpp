// What holds for the readers as a whole: order, bounds, text that was made to hurt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "analyzer/notebooks/findings.h"

namespace varve::notebooks {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

Findings read(std::string_view text) { return read_python({Cell{.text = text, .number = 1}}); }

std::vector<std::string> names(const Findings& findings) {
  std::vector<std::string> all;
  for (const auto& found : findings.imports) all.push_back(found.name);
  return all;
}

TEST(SourceText, TellsImportsInOrderOfPlace) {
  const auto findings = read_python(
      {{.text = "import b\nexec('import a')\nimport c; import a\n", .number = 2}, {.text = "import a", .number = 7}});
  ASSERT_THAT(names(findings), ElementsAre("b", "a", "c", "a", "a"));
  EXPECT_EQ(findings.imports[3].cell, 2u);
  EXPECT_EQ(findings.imports[4].cell, 7u);
}

TEST(SourceText, KeepsTheCellNumberOfScripts) {
  const auto findings = read_python({{.text = "import a", .number = 0}});
  ASSERT_THAT(findings.imports, SizeIs(1));
  EXPECT_EQ(findings.imports[0].cell, 0u);
}

TEST(SourceText, KeepsSoManyFindingsAndNoMore) {
  std::string text;
  for (int i = 0; i < 120'000; ++i)
    text += "import m" + std::to_string(i) + "\n!pip install p" + std::to_string(i) + "\n";
  const auto findings = read(text);
  EXPECT_THAT(findings.imports, SizeIs(kMaxFindings));
  EXPECT_THAT(findings.installs, SizeIs(kMaxFindings));
}

TEST(SourceText, LeavesOutNamesNoModuleCanHave) {
  EXPECT_THAT(
      read("import " + std::string(10'000, 'a') + "\nimport_module('" + std::string(10'000, 'b') + "')\n").imports,
      testing::Each(testing::Field(&Import::unknown_name, true)));
  EXPECT_THAT(read("from " + std::string(10'000, '.') + " import a\n").imports, IsEmpty());
}

// Nothing here has an end, or all of it has the same: what is read twice must not be read twice again.
TEST(SourceText, EndsWithTextMadeToHurt) {
  constexpr std::size_t kBytes = 1 << 20;
  for (const std::string_view unit : {"exec(",  "exec(\"a\"", "run([",       "subprocess.run([\"a\",",
                                      "f\"{",   "f\"{x",      "f\"\"\"{x\n", "'''a\n",
                                      "\\\"",   "a\r",        "(\n",         "(\nfrom a import (b,\n",
                                      "%time ", "if x:\n",    "except (",    "_target_: a.b\n",
                                      "%%zz\n", "lazy ",      "import a ",   "os.system(\"a\"+",
                                      "`",      "{",          "x=!{a ",      "!$(",
                                      "!a>b",   "%%bash\n{a "}) {
    for (const std::string_view before : {"", "!", "%%bash\n", "x = (", "import torch\n"}) {
      const auto text = std::string(before) + repeated(unit, kBytes / 4);
      EXPECT_LE(read(text).imports.size(), kMaxFindings) << before << unit;
    }
  }
}

TEST(SourceText, ReadsDeepBlocksAndBrackets) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::string(static_cast<std::size_t>(i), ' ') + "if x:\n";
  text += std::string(1000, ' ') + "import a\nimport b\n" + std::string(100'000, '(') + "\nimport c\n";
  const auto findings = read(text);
  ASSERT_THAT(names(findings), ElementsAre("a", "b", "c"));
  EXPECT_EQ(findings.imports[0].kind, ImportKind::kOptional);
  EXPECT_EQ(findings.imports[1].kind, ImportKind::kImport);
  EXPECT_TRUE(findings.imports[2].rescued);
}

TEST(SourceText, NestsCodeInStringsOnlySoDeep) {
  std::string code = "import a";
  for (int depth = 0; depth < 12; ++depth) {
    std::string quoted;
    for (const char c : code) quoted += c == '\\' || c == '\'' ? std::string{'\\', c} : std::string{c};
    code = "exec('" + quoted + "')";
    if (code.size() > 1 << 20) break;
    const auto found = names(read(code));
    EXPECT_EQ(found, depth < 4 ? std::vector<std::string>{"a"} : std::vector<std::string>{}) << depth;
  }
}

TEST(SourceText, ReadsNothingFromNothing) {
  EXPECT_THAT(read_python({}).imports, IsEmpty());
  EXPECT_THAT(read_python({{.text = {}, .number = 1}}).imports, IsEmpty());
}

TEST(SourceText, NamesKinds) {
  EXPECT_EQ(import_kind_name(ImportKind::kImport), "import");
  EXPECT_EQ(import_kind_name(ImportKind::kOptional), "optional");
  EXPECT_EQ(import_kind_name(ImportKind::kDynamic), "dynamic");
  EXPECT_EQ(import_kind_name(ImportKind::kMagic), "magic");
  EXPECT_EQ(import_kind_name(ImportKind::kShell), "shell");
}

}  // namespace
}  // namespace varve::notebooks
