#include "analyzer/notebooks/script_cells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varve::notebooks {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::pair<std::uint32_t, std::string>> numbered(const ScriptCells& cells) {
  std::vector<std::pair<std::uint32_t, std::string>> out;
  for (const auto& cell : cells.cells) out.emplace_back(cell.number, cell.text);
  return out;
}

TEST(ScriptCells, AScriptWithoutMarkersIsGivenWhole) {
  EXPECT_THAT(numbered(cells_of_script("import a\n# In the end\n")), ElementsAre(Pair(0, "import a\n# In the end\n")));
}

TEST(ScriptCells, AreCutAtTheMarkersThatToolsWrite) {
  EXPECT_THAT(
      numbered(cells_of_script(
          "# coding: utf-8\n\n# %% [markdown]\n# text\n#%%\na\n# %% [code] {\"x\":1}\nb\r\n# In[ ]:\nc\n# In[12]:\nd")),
      ElementsAre(Pair(1, "a\n"), Pair(2, "b\r\n"), Pair(3, "c\n"), Pair(4, "d")));
  EXPECT_THAT(numbered(cells_of_script("import head\n# <codecell>\na\n# <markdowncell>\n# b\n")),
              ElementsAre(Pair(1, "import head\n"), Pair(2, "a\n")));
}

TEST(ScriptCells, MarkersInStringsAndIndentedOnesAreNone) {
  EXPECT_THAT(numbered(cells_of_script("x = '''\n# %%\nimport no\n'''\n  # %%\ny = \"#\" # %%\n")),
              ElementsAre(Pair(0, "x = '''\n# %%\nimport no\n'''\n  # %%\ny = \"#\" # %%\n")));
  EXPECT_THAT(numbered(cells_of_script("x = 'it\\'s' # '''\n# %%\na")),
              ElementsAre(Pair(1, "x = 'it\\'s' # '''\n"), Pair(2, "a")));
}

TEST(ScriptCells, UncoverMagicsOnlyInFilesOfJupytext) {
  const std::string body = "# %%\n# %pip install a\n# !ls\n# %% x\n# %%bash\n# plain\n";
  EXPECT_THAT(numbered(cells_of_script("# ---\n# jupyter:\n#   jupytext:\n# ---\n\n" + body)),
              ElementsAre(Pair(1, "%pip install a\n!ls\n"), Pair(2, "%%bash\n# plain\n")));
  EXPECT_THAT(numbered(cells_of_script(body)),
              ElementsAre(Pair(1, "# %pip install a\n# !ls\n"), Pair(2, "# %%bash\n# plain\n")));
}

TEST(ScriptCells, ChunksOfMarkdownHaveTheirLanguage) {
  const auto cells = chunks_of_markdown(
      "---\ntitle: x\n---\n```{r setup, include=FALSE}\nlibrary(a)\n```\ntext\n```python\nimport shown\n```\n  "
      "````{Python}\nimport b\n```\n````\n```{julia}\nusing C");
  EXPECT_THAT(numbered(cells), ElementsAre(Pair(1, "library(a)\n"), Pair(2, "import b\n```\n"), Pair(3, "using C")));
  EXPECT_EQ(cells.cells[0].language, "r");
  EXPECT_EQ(cells.cells[1].language, "python");
  EXPECT_EQ(cells.cells[2].language, "julia");
}

}  // namespace
}  // namespace varve::notebooks
