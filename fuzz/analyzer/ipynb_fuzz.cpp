// Any bytes as a notebook. Where simdjson's DOM takes the whole document for JSON, both must find the same code cells.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include "analyzer/notebooks/language.h"
#include "analyzer/notebooks/notebook_reader.h"
#include "analyzer/notebooks/script_cells.h"

namespace {

using namespace varve::notebooks;

Notebook read_checked(std::string_view document) {
  auto notebook = NotebookReader().read(std::string(document));
  std::uint32_t last = 0;
  for (const auto& cell : notebook.cells) {
    if (cell.number <= last || cell.number > notebook.code_cells) std::abort();
    last = cell.number;
    const auto text = notebook.text_of(cell);
    if (!simdjson::validate_utf8(text.data(), text.size())) std::abort();
  }
  language_of_notebook(notebook.kernel_language, notebook.language_name, notebook.kernel_name);
  return notebook;
}

// The code of simple documents of format 4 as simdjson sees it; absent where something is out of the ordinary (an
// object with a key twice, say).
std::optional<std::vector<std::string>> code_by_simdjson(std::string_view document) {
  static simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::array cells;
  if (parser.parse(document.data(), document.size()).get(root) != simdjson::SUCCESS || !root.is_object())
    return std::nullopt;
  std::size_t lists = 0;
  for (const auto member : simdjson::dom::object(root.get_object()))
    lists += member.key == "cells" || member.key == "worksheets" ? 1 : 0;
  if (lists != 1 || root["cells"].get(cells) != simdjson::SUCCESS) return std::nullopt;
  std::vector<std::string> code;
  for (const auto cell : cells) {
    if (!cell.is_object()) continue;
    std::string_view type;
    std::string source;
    std::size_t types = 0, sources = 0;
    for (const auto member : simdjson::dom::object(cell.get_object())) {
      types += member.key == "cell_type" ? 1 : 0;
      sources += member.key == "source" || member.key == "input" ? 1 : 0;
    }
    if (types != 1 || sources != 1) return std::nullopt;
    if (cell["cell_type"].get(type) != simdjson::SUCCESS || type != "code") continue;
    if (std::string_view line; cell["source"].get(line) == simdjson::SUCCESS) {
      source = line;
    } else if (simdjson::dom::array lines; cell["source"].get(lines) == simdjson::SUCCESS) {
      for (const auto element : lines)
        if (element.get(line) == simdjson::SUCCESS) source += line;
    }
    code.push_back(std::move(source));
  }
  return code;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 1 << 15) return 0;  // so that limits do not come into it
  const std::string_view document(reinterpret_cast<const char*>(data), size);
  const auto notebook = read_checked(document);
  if (const auto expected = code_by_simdjson(document)) {
    if (notebook.cells.size() != expected->size()) std::abort();
    for (std::size_t i = 0; i < expected->size(); ++i)
      if (notebook.text_of(notebook.cells[i]) != (*expected)[i]) std::abort();
  }
  for (const auto& cells : {cells_of_script(document).cells.size(), chunks_of_markdown(document).cells.size()})
    if (cells > size + 1) std::abort();
  language_of_text(document);
  return 0;
}
