#pragma once
// Scripts and text notebooks cut into cells: "# %%" (VS Code, Spyder, jupytext, Kaggle), "# In[1]:" (nbconvert), chunks
// of R Markdown and Quarto.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace varve::notebooks {

struct ScriptCell {
  std::string_view text;     // of the script, or of `rewritten` below
  std::uint32_t number = 0;  // 1-based, counting code cells; 0 = the script has no cells and is given whole
  std::string language;      // of a chunk; "" = the file's
};

struct ScriptCells {
  std::unique_ptr<const std::string> rewritten;  // the text, where magics in comments were uncovered
  std::vector<ScriptCell> cells;
};

// A Python, R or Julia script. Markers inside triple-quoted strings are none. What stands before the first marker is a
// cell if it holds more than comments. In files that jupytext wrote, magics that it hid in comments ("# %pip install
// x", "# !ls") are uncovered.
ScriptCells cells_of_script(std::string_view text);

// The code chunks of R Markdown or Quarto: ```{r}, ```{python, echo=FALSE}. Each has its language in lower case.
ScriptCells chunks_of_markdown(std::string_view text);

}  // namespace varve::notebooks
