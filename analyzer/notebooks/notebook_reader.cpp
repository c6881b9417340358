#include "analyzer/notebooks/notebook_reader.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "analyzer/notebooks/internal/json_bytes.h"
#include "analyzer/notebooks/internal/json_text.h"
#include "analyzer/notebooks/language.h"
#include "core/base/utf8.h"

namespace varve::notebooks {
namespace {

constexpr std::size_t kBeginningBytes = 64;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool contains_escape(std::string_view text) { return text.find('\\') != std::string_view::npos; }

}  // namespace

const NotebookReader::Member* NotebookReader::find_member(Place place, std::string_view key) {
  static constexpr Member kMembers[] = {
      {Place::kDocument, "cells", Field::kNone, Place::kCells},
      {Place::kDocument, "metadata", Field::kNone, Place::kMetadata},
      {Place::kDocument, "nbformat", Field::kFormat},
      {Place::kDocument, "worksheets", Field::kNone, Place::kWorksheets},
      {Place::kMetadata, "kernelspec", Field::kNone, Place::kKernelspec},
      {Place::kMetadata, "language_info", Field::kNone, Place::kLanguageInfo},
      {Place::kKernelspec, "name", Field::kKernelName},
      {Place::kKernelspec, "language", Field::kKernelLanguage},
      {Place::kLanguageInfo, "name", Field::kLanguageName},
      {Place::kWorksheet, "cells", Field::kNone, Place::kCells},
      {Place::kCell, "cell_type", Field::kCellType},
      {Place::kCell, "source", Field::kSource},
      {Place::kCell, "input", Field::kInput},            // formats 2 and 3
      {Place::kCell, "language", Field::kCellLanguage},  // format 3
      {Place::kCell, "metadata", Field::kNone, Place::kCellMetadata},
      {Place::kCellMetadata, "kernel", Field::kCellLanguage},  // Script of Scripts
      {Place::kCellMetadata, "vscode", Field::kNone, Place::kCellEditor},
      {Place::kCellMetadata, "dotnet_interactive", Field::kNone, Place::kCellTool},
      {Place::kCellMetadata, "polyglot_notebook", Field::kNone, Place::kCellTool},
      {Place::kCellEditor, "languageId", Field::kEditorLanguage},
      {Place::kCellTool, "language", Field::kCellLanguage},
      {Place::kCellTool, "kernelName", Field::kCellLanguage},
  };
  const auto* found = std::find_if(std::begin(kMembers), std::end(kMembers),
                                   [&](const Member& m) { return m.place == place && m.key == key; });
  return found == std::end(kMembers) ? nullptr : found;
}

void NotebookReader::start() {
  notebook_.nbformat = 0;
  notebook_.kernel_name.clear();
  notebook_.kernel_language.clear();
  notebook_.language_name.clear();
  notebook_.code_cells = 0;
  notebook_.text.clear();
  notebook_.cells.clear();
  notebook_.is_notebook = false;
  notebook_.problems.clear();
  step_ = Step::kDocument;
  depth_ = 0;
  field_ = Field::kNone;
  member_ = nullptr;
  kept_.clear();
  beginning_.clear();
  block_offset_ = 0;
  odd_cell_ = 0;
}

bool NotebookReader::feed(std::string_view block) {
  if (beginning_.size() < kBeginningBytes) beginning_ += block.substr(0, kBeginningBytes - beginning_.size());
  block_ = block.data();
  const char* p = block.data();
  const char* const end = p + block.size();
  while (p != end && step_ != Step::kBroken && step_ != Step::kNoDocument) p = step(p, end);
  block_offset_ += block.size();
  return step_ == Step::kNoDocument ? beginning_.size() < kBeginningBytes : step_ != Step::kBroken;
}

const char* NotebookReader::step(const char* p, const char* end) {
  switch (step_) {
    case Step::kInKey:
      return read_key(p, end);
    case Step::kInValue:
      return read_value(p, end);
    case Step::kDocument:
      return begin_document(p);
    default:
      break;
  }
  if (is_json_space(*p)) return p + 1;
  switch (step_) {
    case Step::kFirstKey:
      if (*p == '}') {
        leave();
        return p + 1;
      }
      [[fallthrough]];
    case Step::kKey:
      if (*p != '"') return broken(p, "a key is expected");
      kept_.clear();
      skipper_.start();
      step_ = Step::kInKey;
      return p;
    case Step::kColon:
      if (*p != ':') return broken(p, "a colon is expected");
      step_ = Step::kMemberValue;
      return p + 1;
    case Step::kFirstElement:
      if (*p == ']') {
        leave();
        return p + 1;
      }
      [[fallthrough]];
    case Step::kElement:
    case Step::kMemberValue:
      return begin_value(p);
    case Step::kAfterValue:
      return after_value(p);
    default:
      return broken(p, "there is more behind the end of the document");
  }
}

const char* NotebookReader::begin_document(const char* p) {
  const auto offset = block_offset_ + std::uint64_t(p - block_);
  if (is_json_space(*p) || (offset < kByteOrderMark.size() && *p == kByteOrderMark[offset])) return p + 1;
  if (*p != '{') {
    step_ = Step::kNoDocument;
    return p;
  }
  enter(Place::kDocument);
  return p + 1;
}

const char* NotebookReader::read_key(const char* p, const char* end) {
  const char* const stop = skipper_.skip(p, end);
  if (kept_.size() <= kMaxKeyBytes) kept_.append(p, stop);
  if (!skipper_.done()) return stop;
  member_ = nullptr;
  if (kept_.size() <= kMaxKeyBytes) {
    if (contains_escape(kept_)) {
      std::string key;
      append_json_string(kept_, key);
      member_ = find_member(place(), key);
    } else {
      member_ = find_member(place(), std::string_view(kept_).substr(1, kept_.size() - 2));
    }
  }
  step_ = Step::kColon;
  return stop;
}

const char* NotebookReader::begin_value(const char* p) {
  if (*p == ',' || *p == ':' || *p == '}' || *p == ']') return broken(p, "a value is expected");
  const bool is_member = step_ == Step::kMemberValue;
  field_ = Field::kNone;
  if (!is_member) {  // an element of a list of cells or worksheets
    if (*p == '{') {
      enter(place() == Place::kCells ? Place::kCell : Place::kWorksheet);
      return p + 1;
    }
  } else if (member_ != nullptr && member_->field != Field::kNone) {
    field_ = member_->field;
  } else if (member_ != nullptr && *p == (is_list(member_->enter) ? '[' : '{')) {
    enter(member_->enter);
    return p + 1;
  }
  // The source of a cell that is known not to be code is not kept. Where the type comes later, it is kept and dropped
  // then.
  const bool is_source = field_ == Field::kSource || field_ == Field::kInput;
  keep_ = field_ != Field::kNone && !(is_source && !cell_type_.empty() && cell_type_ != "code");
  too_large_ = false;
  kept_.clear();
  skipper_.start();
  step_ = Step::kInValue;
  return p;
}

std::uint64_t NotebookReader::field_limit() const {
  return field_ == Field::kSource || field_ == Field::kInput ? limits_.max_cell_bytes : kMaxFieldBytes;
}

const char* NotebookReader::read_value(const char* p, const char* end) {
  const char* const stop = skipper_.skip(p, end);
  if (keep_) {
    if (kept_.size() + std::size_t(stop - p) > field_limit()) {
      keep_ = false;
      too_large_ = true;
      kept_ = std::string();  // gives the memory back
    } else {
      kept_.append(p, stop);
    }
  }
  if (skipper_.failed())
    return broken(stop, skipper_.state() == ValueSkipper::State::kTooDeep
                            ? fmt::format("brackets are nested deeper than {}", ValueSkipper::kMaxDepth)
                            : std::string("a bracket closes what is not open"));
  if (!skipper_.done()) return stop;
  take_field();
  step_ = Step::kAfterValue;
  return stop;
}

const char* NotebookReader::after_value(const char* p) {
  const bool list = is_list(place());
  if (*p == ',') {
    step_ = list ? Step::kElement : Step::kKey;
  } else if (*p == (list ? ']' : '}')) {
    leave();
  } else {
    return broken(p, "a comma or the end of a list or object is expected");
  }
  return p + 1;
}

void NotebookReader::enter(Place place) {
  places_[depth_++] = place;
  step_ = is_list(place) ? Step::kFirstElement : Step::kFirstKey;
  switch (place) {
    case Place::kDocument:
    case Place::kWorksheet:
      sheet_has_cells_ = false;
      break;
    case Place::kCells:
      notebook_.is_notebook = true;
      if (sheet_has_cells_) {  // a key given twice: the last one counts, as in every JSON reader
        notebook_.cells.resize(sheet_first_cell_);
        notebook_.code_cells = sheet_first_number_;
      }
      sheet_has_cells_ = true;
      sheet_first_cell_ = notebook_.cells.size();
      sheet_first_number_ = notebook_.code_cells;
      break;
    case Place::kCell:
      cell_type_.clear();
      cell_language_.clear();
      source_.clear();
      source_is_input_ = source_too_large_ = false;
      break;
    default:
      break;
  }
}

void NotebookReader::leave() {
  if (place() == Place::kCell) end_cell();
  --depth_;
  step_ = depth_ == 0 ? Step::kEnd : Step::kAfterValue;
}

void NotebookReader::take_language(std::string& into) {
  into.clear();
  if (kept_.size() >= 2 && kept_.front() == '"') append_json_string(kept_, into);
  if (!is_valid_utf8(into)) into = repair_utf8(into);
}

// What an editor colours a cell as ("plaintext", "shellscript") says little about what its kernel runs: believed only
// for languages that we read.
void NotebookReader::take_editor_language() {
  std::string told;
  take_language(told);
  const auto language = language_of_name(told);
  if (cell_language_.empty() && (language == "python" || language == "r" || language == "julia"))
    cell_language_ = language;
}

void NotebookReader::take_field() {
  if (too_large_ && (field_ == Field::kSource || field_ == Field::kInput)) source_too_large_ = true;
  if (!keep_) return;
  switch (field_) {
    case Field::kFormat:
      std::from_chars(kept_.data(), kept_.data() + kept_.size(), notebook_.nbformat);
      break;
    case Field::kKernelName:
      take_language(notebook_.kernel_name);
      break;
    case Field::kKernelLanguage:
      take_language(notebook_.kernel_language);
      break;
    case Field::kLanguageName:
      take_language(notebook_.language_name);
      break;
    case Field::kCellType:
      take_language(cell_type_);
      if (cell_type_.empty()) cell_type_ = "unknown";
      break;
    case Field::kCellLanguage:
      take_language(cell_language_);
      break;
    case Field::kEditorLanguage:
      take_editor_language();
      break;
    case Field::kSource:
    case Field::kInput:
      source_too_large_ = false;
      source_is_input_ = field_ == Field::kInput;
      source_.swap(kept_);
      break;
    case Field::kNone:
      break;
  }
}

void NotebookReader::end_cell() {
  if (cell_type_ != "code") return;
  const auto number = ++notebook_.code_cells;
  if (source_too_large_) {
    notebook_.problems.push_back(
        fmt::format("code cell {}: larger than {} bytes, not read", number, limits_.max_cell_bytes));
    return;
  }
  // Decoded text is never larger than its JSON.
  if (notebook_.text.size() + source_.size() > limits_.max_code_bytes) {
    notebook_.problems.push_back(fmt::format("code cell {}: the notebook has more than {} bytes of code, not read",
                                             number, limits_.max_code_bytes));
    return;
  }
  CodeCell cell{.begin = notebook_.text.size(), .size = 0, .number = number, .language = cell_language_};
  if (!source_.empty() && !append_json_lines(source_, source_is_input_, notebook_.text) && odd_cell_ == 0)
    odd_cell_ = number;
  cell.size = notebook_.text.size() - cell.begin;
  notebook_.cells.push_back(std::move(cell));
}

void NotebookReader::repair_text() {
  if (is_valid_utf8(notebook_.text)) {
    // Cells that together are UTF-8 could still be cut within a character; each is looked at by itself only where a
    // border is no character's.
    const auto cut = [&](const CodeCell& cell) {
      return cell.begin != notebook_.text.size() &&
             (static_cast<unsigned char>(notebook_.text[cell.begin]) & 0xc0) == 0x80;
    };
    if (std::none_of(notebook_.cells.begin(), notebook_.cells.end(), cut)) return;
  }
  std::string repaired;
  for (auto& cell : notebook_.cells) {
    const auto text = repair_utf8(notebook_.text_of(cell));
    cell.begin = repaired.size();
    cell.size = text.size();
    repaired += text;
  }
  notebook_.text = std::move(repaired);
  notebook_.problems.push_back("bytes that are not UTF-8 in the code: read as U+FFFD");
}

const Notebook& NotebookReader::finish() {
  // A cell that the document breaks off in has its source nevertheless, if that was whole: outputs come after it.
  const bool inside_cell = std::find(places_.begin(), places_.begin() + std::ptrdiff_t(depth_), Place::kCell) !=
                           places_.begin() + std::ptrdiff_t(depth_);
  if (inside_cell && !source_.empty()) end_cell();
  if (step_ == Step::kDocument) {
    notebook_.problems.push_back("empty file");
  } else if (step_ == Step::kNoDocument) {
    notebook_.problems.push_back(beginning_problem());
  } else if (step_ != Step::kBroken && step_ != Step::kEnd) {
    notebook_.problems.push_back(fmt::format(
        "the document breaks off after {} bytes{}", block_offset_,
        notebook_.is_notebook ? fmt::format(": {} code cells were read", notebook_.code_cells) : std::string()));
  } else if (step_ == Step::kEnd && !notebook_.is_notebook) {
    notebook_.problems.push_back("a JSON document without a list of cells: no notebook");
  }
  repair_text();
  if (odd_cell_ != 0)
    notebook_.problems.push_back(fmt::format(
        "code cell {}: its source is not a string or list of strings, or has escapes that JSON does not know",
        odd_cell_));
  if (notebook_.nbformat < 0 || notebook_.nbformat > 1000) notebook_.nbformat = 0;
  return notebook_;
}

std::string NotebookReader::beginning_problem() const {
  const std::string_view text = beginning_;
  if (text.starts_with("version https://git-lfs")) return "a git-lfs pointer: the notebook itself was not fetched";
  if (text.starts_with("\xff\xfe") || text.starts_with(std::string_view("\xfe\xff")))
    return "UTF-16 text: notebooks are UTF-8";
  if (text.starts_with("\x1f\x8b")) return "gzip data, no JSON document";
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '<') return "a web page or XML, no JSON document";
  return "no JSON document";
}

const char* NotebookReader::broken(const char* p, std::string_view why) {
  const auto offset = block_offset_ + std::uint64_t(p - block_);
  notebook_.problems.push_back(fmt::format("broken JSON at byte {}: {}", offset, why));
  step_ = Step::kBroken;
  return p;
}

}  // namespace varve::notebooks
