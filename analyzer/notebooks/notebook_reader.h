#pragma once
// Jupyter notebooks (nbformat 2, 3 and 4): code cells are kept, all else passes by. Format: nbformat.readthedocs.io,
// "The Notebook file format".
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace varve::notebooks {

struct NotebookLimits {
  std::uint64_t max_cell_bytes = 64u << 20;   // of one cell's source; larger ones are reported, not read
  std::uint64_t max_code_bytes = 256u << 20;  // of all cells together
};

// One code cell of a notebook as read. The text lies in Notebook::text.
struct CodeCell {
  std::size_t begin = 0, size = 0;
  std::uint32_t number = 0;  // 1-based, counting all code cells
  std::string language;      // as the cell's own metadata tell it; "" = the notebook's
};

struct Notebook {
  int nbformat = 0;  // major; 0 = not told
  std::string kernel_name, kernel_language,
      language_name;             // metadata.kernelspec.{name,language}, metadata.language_info.name; "" = not told
  std::uint32_t code_cells = 0;  // all, those not read included
  std::string text;              // of all cells read, valid UTF-8
  std::vector<CodeCell> cells;
  bool is_notebook = false;           // it has a list of cells, at least begun
  std::vector<std::string> problems;  // one line each; what was read before or beside them stands

  std::string_view text_of(const CodeCell& cell) const { return std::string_view(text).substr(cell.begin, cell.size); }
};

// A document that breaks off or is no JSON from some byte on gives the cells that were whole before. One reader reads
// any number of documents, one after the other.
class NotebookReader {
 public:
  explicit NotebookReader(const NotebookLimits& limits = {});
  ~NotebookReader();
  // Uses up the document. Less than 4 GiB; needs as much memory again for its structure.
  Notebook read(std::string&& document);

 private:
  struct Parser;
  NotebookLimits limits_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace varve::notebooks
