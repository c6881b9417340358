// How it works: simdjson finds the structure of the whole document at once and is then led through it value by value;
// what is not asked for (outputs, most of a notebook) is passed over by its brackets. That it looks at values only when
// they are asked for is what lets a broken document give what stands before the break: see mended().
#include "analyzer/notebooks/notebook_reader.h"

#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "analyzer/notebooks/language.h"
#include "core/base/text/utf8.h"

namespace varve::notebooks {
namespace {

using simdjson::ondemand::array;
using simdjson::ondemand::json_type;
using simdjson::ondemand::object;
using simdjson::ondemand::value;

constexpr std::string_view kSpaces = " \t\r\n";

std::optional<std::uint32_t> hex_escape(std::string_view text) {
  std::uint32_t code = 0;
  if (!text.starts_with("\\u") || text.size() < 6) return std::nullopt;
  const auto end = std::from_chars(text.data() + 2, text.data() + 6, code, 16).ptr;
  return end == text.data() + 6 ? std::optional(code) : std::nullopt;
}

// What a literal says that simdjson takes for no string: a lone surrogate becomes U+FFFD, of an escape that JSON does
// not know the character itself is left. False if there were such.
bool append_odd_literal(std::string_view rest, std::string& out) {
  static constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
  bool good = true;
  for (rest.remove_prefix(1); rest.size() > 1 && rest.front() != '"';) {
    std::size_t length = 1;
    if (rest.front() != '\\') {
      out += rest.front();
    } else if (const auto first = hex_escape(rest)) {
      const auto second = hex_escape(rest.substr(6));
      const bool pair = *first >= 0xd800 && *first < 0xdc00 && second && *second >= 0xdc00 && *second < 0xe000;
      const bool lone = !pair && *first >= 0xd800 && *first < 0xe000;
      append_utf8(pair ? 0x10000 + ((*first - 0xd800) << 10) + (*second - 0xdc00) : lone ? 0xfffd : *first, out);
      length = pair ? 12 : 6;
    } else {
      const auto known = kEscapes.find(rest[1]);
      good = good && known != std::string_view::npos;
      out += known == std::string_view::npos ? rest[1] : kMeant[known];
      length = 2;
    }
    rest.remove_prefix(length);
  }
  return good;
}

bool append_string(value from, std::string& out) {
  const std::string_view literal = from.raw_json_token();
  std::string_view text;
  if (from.get_string().get(text) != simdjson::SUCCESS) return append_odd_literal(literal, out);
  out += text;
  return true;
}

// "" for what is no string.
std::string string_in(value from) {
  std::string text;
  if (from.type() == json_type::string) append_string(from, text);
  return text;
}

// What a string or a list of strings says: lists are joined as notebooks mean it. False if something in it was neither.
// `old_lines`: lists of formats 2 and 3, whose lines may lack their line ends; then they are given back.
bool append_lines(value from, bool old_lines, std::string& out) {
  const json_type type = from.type();
  if (type == json_type::string) return append_string(from, out);
  if (type != json_type::array) return type == json_type::null;
  bool good = true, first = true, add_line_ends = false;
  for (value line : from.get_array()) {
    if (line.type() != json_type::string) {
      good = false;
      continue;
    }
    if (!first && add_line_ends) out += '\n';
    const auto begin = out.size();
    good = append_string(line, out) && good;
    if (first) add_line_ends = old_lines && (out.size() == begin || (out.back() != '\n' && out.back() != '\r'));
    first = false;
  }
  return good;
}

// Calls `each` with key and value of all members, in their order.
template <typename Each>
void each_member(object from, Each&& each) {
  for (auto member : from) {
    std::string_view key;
    if (member.unescaped_key().get(key) == simdjson::STRING_ERROR) key = {};
    each(key, member.value());
  }
}

// Does nothing for what is no object.
template <typename Each>
void each_member(value from, Each&& each) {
  if (from.type() == json_type::object) each_member(object(from.get_object()), each);
}

// Leads through one document.
class NotebookWalk {
 public:
  NotebookWalk(const NotebookLimits& limits, Notebook& notebook) : limits_(limits), notebook_(notebook) {}

  void read_document(object document) {
    Sheet sheet;
    each_member(document, [&](std::string_view key, value inner) {
      if (key == "nbformat") {
        read_format(inner.raw_json_token());
      } else if (key == "metadata") {
        read_metadata(inner);
      } else if (key == "cells") {
        read_cells(inner, sheet);
      } else if (key == "worksheets" && inner.type() == json_type::array) {
        for (value worksheet : inner.get_array()) read_worksheet(worksheet);
      }
    });
  }

  // The document broke off, or broke: a cell has its source nevertheless, if that was whole, as outputs come after it.
  void break_off() {
    if (in_cell_ && has_source_) end_cell();
  }

  void finish() {
    if (odd_cell_ != 0)
      notebook_.problems.push_back(fmt::format(
          "code cell {}: its source is not a string or list of strings, or has escapes that JSON does not know",
          odd_cell_));
    if (notebook_.nbformat < 0 || notebook_.nbformat > 1000) notebook_.nbformat = 0;
  }

 private:
  // Of a key given twice the last one counts, as in every JSON reader.
  struct Sheet {
    bool has_cells = false;
    std::size_t first_cell = 0;
    std::uint32_t first_number = 0;
  };

  void read_format(std::string_view number) {
    std::from_chars(number.data(), number.data() + number.size(), notebook_.nbformat);
  }

  void read_metadata(value metadata) {
    each_member(metadata, [&](std::string_view key, value inner) {
      if (key == "kernelspec") {
        each_member(inner, [&](std::string_view name, value told) {
          if (name == "name") notebook_.kernel_name = string_in(told);
          if (name == "language") notebook_.kernel_language = string_in(told);
        });
      } else if (key == "language_info") {
        each_member(inner, [&](std::string_view name, value told) {
          if (name == "name") notebook_.language_name = string_in(told);
        });
      }
    });
  }

  void read_worksheet(value worksheet) {
    Sheet sheet;
    each_member(worksheet, [&](std::string_view key, value inner) {
      if (key == "cells") read_cells(inner, sheet);
    });
  }

  void read_cells(value cells, Sheet& sheet) {
    if (cells.type() != json_type::array) return;
    notebook_.is_notebook = true;
    if (sheet.has_cells) {
      notebook_.cells.resize(sheet.first_cell);
      notebook_.code_cells = sheet.first_number;
    }
    sheet = {.has_cells = true, .first_cell = notebook_.cells.size(), .first_number = notebook_.code_cells};
    for (value cell : cells.get_array()) {
      if (cell.type() != json_type::object) continue;
      type_.clear();
      language_.clear();
      source_.clear();
      has_source_ = false;
      good_source_ = true;
      in_cell_ = true;
      each_member(cell, [&](std::string_view key, value inner) { read_cell_member(key, inner); });
      end_cell();
    }
  }

  void read_cell_member(std::string_view key, value inner) {
    if (key == "cell_type") {
      type_ = string_in(inner);
      if (type_.empty()) type_ = "unknown";
    } else if (key == "language") {  // format 3
      language_ = string_in(inner);
    } else if (key == "metadata") {
      each_member(inner, [&](std::string_view name, value told) { read_cell_metadata(name, told); });
    } else if ((key == "source" || key == "input") && (type_.empty() || type_ == "code")) {  // "input": formats 2, 3
      source_.clear();
      has_source_ = false;
      good_source_ = append_lines(inner, key == "input", source_);
      has_source_ = true;
    }
  }

  void read_cell_metadata(std::string_view key, value inner) {
    if (key == "kernel") {  // Script of Scripts
      language_ = string_in(inner);
    } else if (key == "dotnet_interactive" || key == "polyglot_notebook") {
      each_member(inner, [&](std::string_view name, value told) {
        if (name == "language" || name == "kernelName") language_ = string_in(told);
      });
    } else if (key == "vscode") {
      each_member(inner, [&](std::string_view name, value told) {
        if (name == "languageId") take_editor_language(language_of_name(string_in(told)));
      });
    }
  }

  // What an editor colours a cell as ("plaintext", "shellscript") says little about what its kernel runs: believed only
  // for languages that kernels have.
  void take_editor_language(const std::string& language) {
    if (language_.empty() && (language == "python" || language == "r" || language == "julia")) language_ = language;
  }

  void end_cell() {
    in_cell_ = false;
    if (type_ != "code") return;
    const auto number = ++notebook_.code_cells;
    if (source_.size() > limits_.max_cell_bytes) {
      notebook_.problems.push_back(
          fmt::format("code cell {}: larger than {} bytes, not read", number, limits_.max_cell_bytes));
      return;
    }
    if (notebook_.text.size() + source_.size() > limits_.max_code_bytes) {
      notebook_.problems.push_back(fmt::format("code cell {}: the notebook has more than {} bytes of code, not read",
                                               number, limits_.max_code_bytes));
      return;
    }
    if (!good_source_ && odd_cell_ == 0) odd_cell_ = number;
    notebook_.cells.push_back(
        {.begin = notebook_.text.size(), .size = source_.size(), .number = number, .language = language_});
    notebook_.text += source_;
  }

  const NotebookLimits& limits_;
  Notebook& notebook_;
  std::uint32_t odd_cell_ = 0;  // the first code cell whose source could not be read as it should be
  // The cell that is read now.
  bool in_cell_ = false, has_source_ = false, good_source_ = true;
  std::string type_, language_, source_;
};

std::string beginning_problem(std::string_view text) {
  const auto begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return "empty file";
  if (text.starts_with("version https://git-lfs")) return "a git-lfs pointer: the notebook itself was not fetched";
  if (text.starts_with("\xff\xfe") || text.starts_with(std::string_view("\xfe\xff")))
    return "UTF-16 text: notebooks are UTF-8";
  if (text.starts_with("\x1f\x8b")) return "gzip data, no JSON document";
  return text[begin] == '<' ? "a web page or XML, no JSON document" : "no JSON document";
}

// Makes a document that simdjson refuses as a whole one that it can be led through up to what is wrong: bytes that are
// no UTF-8 are replaced, line ends and tabs in strings escaped (other control characters become spaces), a string
// without an end is left out, and a document without an end gets one that ends no value in it. `end`: where the
// document stops; what is wrong from there on is that it breaks off.
std::string mended(const std::string& document, std::size_t& end) {
  std::string out;
  out.reserve(document.size() + simdjson::SIMDJSON_PADDING);
  bool in_string = false, escaped = false;
  std::size_t string_begin = 0;
  for (const char c : document) {
    if (c == '"' && !escaped) {
      in_string = !in_string;
      string_begin = out.size();
    }
    escaped = c == '\\' && !escaped;  // outside of strings too, as simdjson sees it
    if (!in_string || static_cast<unsigned char>(c) >= ' ') {
      out += c;
    } else {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : " ";
    }
  }
  if (in_string) out.resize(string_begin);
  end = out.find_last_not_of(kSpaces);
  if (in_string || out[end] != '}') {
    end = out.size();
    out += ":}";
  }
  return out;
}

}  // namespace

struct NotebookReader::Parser {
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  object root;

  // Whether the text is a JSON object, as far as can be seen before it is walked through.
  bool begin(std::string& text) {
    const auto size = text.size();
    text.append(simdjson::SIMDJSON_PADDING, ' ');
    const bool good = parser.iterate(text.data(), size, text.size()).get(document) == simdjson::SUCCESS &&
                      document.get_object().get(root) == simdjson::SUCCESS;
    text.resize(size);
    return good;
  }
  // Where it stands; nullptr at the end.
  const char* place() {
    const char* at = nullptr;
    return document.current_location().get(at) == simdjson::SUCCESS ? at : nullptr;
  }
};

NotebookReader::NotebookReader(const NotebookLimits& limits) : limits_(limits), parser_(std::make_unique<Parser>()) {}
NotebookReader::~NotebookReader() = default;

Notebook NotebookReader::read(std::string&& document) {
  Notebook notebook;
  if (document.starts_with(kByteOrderMark)) document.erase(0, kByteOrderMark.size());
  if (const auto begin = document.find_first_not_of(kSpaces); begin == std::string::npos || document[begin] != '{') {
    notebook.problems.push_back(beginning_problem(document));
    return notebook;
  }
  const auto size = document.size();
  auto end = document.find_last_not_of(kSpaces);
  bool repaired = false;
  if (!parser_->begin(document)) {
    repaired = !is_utf8(document);
    if (repaired) document = repair_utf8(document);
    document = mended(document, end);
    if (!parser_->begin(document)) {
      notebook.problems.push_back("no JSON document");
      return notebook;
    }
  }
  NotebookWalk walk(limits_, notebook);
  std::string_view wrong;
  try {
    walk.read_document(parser_->root);
    if (parser_->place()) {
      wrong = "there is more behind the end of the document";
      end = document.size();
    }
  } catch (const simdjson::simdjson_error& error) {
    walk.break_off();
    wrong = simdjson::error_message(error.error());
  }
  if (!wrong.empty()) {
    const auto* place = parser_->place();
    const auto offset = place != nullptr ? std::size_t(place - document.data()) : end;
    notebook.problems.push_back(
        offset < end ? fmt::format("broken JSON at byte {}: {}", offset, wrong)
                     : fmt::format("the document breaks off after {} bytes{}", size,
                                   notebook.is_notebook ? fmt::format(": {} code cells were read", notebook.code_cells)
                                                        : std::string()));
  } else if (!notebook.is_notebook) {
    notebook.problems.push_back("a JSON document without a list of cells: no notebook");
  }
  if (repaired && notebook.text.find("\xef\xbf\xbd") != std::string::npos)
    notebook.problems.push_back("bytes that are not UTF-8 in the code: read as U+FFFD");
  walk.finish();
  return notebook;
}

}  // namespace varve::notebooks
