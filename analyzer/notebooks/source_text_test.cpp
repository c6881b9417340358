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

TEST(SourceText, TellsWhatReadingAModuleReaches) {
  const auto findings = read_module(
      "import always\n"
      "%matplotlib inline\n"
      "try:\n    import tried\nexcept ImportError:\n    import fallback\n"
      "if x:\n    import wished\n"
      "class C:\n    import inner\n    def f(self):\n        import late\n        try:\n            import late_tried\n"
      "        except Exception:\n            pass\n    import after\n"
      "async def g():\n    __import__('dynamic')\n    exec('import nested')\n"
      "def h(): import one_line\n"
      "import last\n");
  std::vector<std::string> reached, later;
  for (const auto& found : findings.imports) {
    const bool runs = found.kind == ImportKind::kImport || found.tried;
    (runs && !found.in_function ? reached : later).push_back(found.name);
  }
  EXPECT_THAT(reached, ElementsAre("always", "tried", "inner", "after", "last"));
  EXPECT_THAT(later, ElementsAre("fallback", "wished", "late", "late_tried", "dynamic", "nested", "one_line"));
  EXPECT_THAT(findings.installs, IsEmpty());
}

TEST(SourceText, TellsLibrariesThatAreLoadedByPath) {
  const auto findings = read_module(
      "a = CDLL('libone.so.1')\nb = ctypes.cdll.LoadLibrary(name)\nP = '/opt/two/libtwo.so'\nc = ctypes.CDLL(None)\n"
      "d = '/not/a/library'\n# CDLL('comment.so')\n");
  EXPECT_THAT(findings.libraries, ElementsAre("libone.so.1", "/opt/two/libtwo.so"));
}

TEST(SourceText, ReadsCommandsAndShellScripts) {
  EXPECT_THAT(names(read_command({"env", "A=1", "python3", "-m", "kernel.launch", "-f", "x"})),
              ElementsAre("kernel.launch"));
  EXPECT_THAT(names(read_command({"bash", "-c", "cd /x && exec served --port 1"})), ElementsAre("served"));
  const std::string_view python = "%%bash\nimport notpython\nfrom a import b\ndef f():\n  pass\nserved\n";
  EXPECT_THAT(names(read_python({Cell{.text = python, .number = 1}})), ElementsAre("served"))
      << "Python where a shell was asked for";
  EXPECT_THAT(names(read_shell("#!/bin/sh\nset -e\npython -m one.two\ntool run\n")), ElementsAre("one.two", "tool"));
  EXPECT_THAT(read_command({}).imports, IsEmpty());
}

std::vector<std::string> backends(std::string_view text) {
  std::vector<std::string> all;
  for (const auto& found : read(text).backends) all.push_back(found.module + " of " + found.call);
  return all;
}

TEST(SourceText, TellsWhatLibrariesLoadForCalls) {
  EXPECT_THAT(backends("import pandas as pd\npd.read_parquet('a')\n"),
              ElementsAre("fastparquet of read_parquet", "pyarrow of read_parquet"));
  EXPECT_THAT(backends("import pandas as pd\npd.read_parquet(path(1, 2),\n  columns=['engine'], engine='pyarrow')\n"),
              ElementsAre("pyarrow of read_parquet"));
  EXPECT_THAT(backends("import pandas\npandas.read_excel('a', engine = 'calamine')\n"),
              ElementsAre("python_calamine of read_excel"));
  EXPECT_THAT(backends("import pandas\npandas.read_parquet('a', engine=mine)\n"), SizeIs(2)) << "not a constant";
  EXPECT_THAT(backends("import pandas\ndf.head().to_markdown()\ndf.style.format('x')\n"),
              ElementsAre("tabulate of to_markdown", "jinja2 of format", "matplotlib of format"));
  EXPECT_THAT(backends("from tqdm.notebook import tqdm\n"), ElementsAre("ipywidgets of tqdm.notebook.tqdm"));
  EXPECT_THAT(backends("import torch.utils.tensorboard\n"), ElementsAre("tensorboard of torch.utils.tensorboard"));
  EXPECT_THAT(backends("read_excel('a')\ndf.plot()\n"), IsEmpty()) << "nothing imports the library";
  EXPECT_THAT(backends("import pandas\ndef read_excel(x): pass\n"), IsEmpty()) << "a definition is no call";
  EXPECT_THAT(backends("import pandas\n# pd.read_excel(1)\nx = 'pd.read_excel(1)'\n"), IsEmpty());
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
