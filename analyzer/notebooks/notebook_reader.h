#pragma once
// Jupyter notebooks (nbformat 2, 3 and 4) read as a stream: code cells are kept, all else passes by. Format:
// nbformat.readthedocs.io, "The Notebook file format".
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/internal/value_skipper.h"
#include "core/base/bytes.h"

namespace varve::notebooks {

struct NotebookLimits {
  std::uint64_t max_cell_bytes =
      64u << 20;  // of one cell's source, as JSON writes it; larger ones are reported, not read
  std::uint64_t max_code_bytes = 256u << 20;  // of all cells together, decoded
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

// Takes one document in blocks of any size and holds no more of it than the code and one cell. A document that breaks
// off or is no JSON from some byte on gives the cells that were whole before. One reader reads any number of documents,
// one after the other.
class NotebookReader {
 public:
  explicit NotebookReader(const NotebookLimits& limits = {}) : limits_(limits) { start(); }

  // Forgets everything and expects a new document.
  void start();
  // Returns false when nothing of the rest will be wanted (the document is broken): the caller may stop.
  bool feed(std::string_view block);
  // The document is at its end. Valid until the next start().
  const Notebook& finish();

 private:
  enum class Step : std::uint8_t {
    kDocument,
    kFirstKey,
    kKey,
    kInKey,
    kColon,
    kMemberValue,
    kFirstElement,
    kElement,
    kInValue,
    kAfterValue,
    kEnd,
    kBroken,
    kNoDocument
  };
  enum class Place : std::uint8_t {
    kDocument,
    kMetadata,
    kKernelspec,
    kLanguageInfo,
    kWorksheets,
    kWorksheet,
    kCells,
    kCell,
    kCellMetadata,
    kCellEditor,
    kCellTool
  };
  enum class Field : std::uint8_t {
    kNone,
    kFormat,
    kKernelName,
    kKernelLanguage,
    kLanguageName,
    kCellType,
    kSource,
    kInput,
    kCellLanguage,
    kEditorLanguage
  };
  struct Member {
    Place place;
    std::string_view key;
    Field field = Field::kNone;      // what is kept of the value, or
    Place enter = Place::kDocument;  // the place that the value is
  };
  static constexpr std::size_t kMaxPlaces =
      8;  // document, worksheets, worksheet, cells, cell, its metadata, a tool in it
  static constexpr std::size_t kMaxKeyBytes = 64;
  static constexpr std::size_t kMaxFieldBytes = 1024;

  static const Member* find_member(Place place, std::string_view key);
  static bool is_list(Place place) { return place == Place::kWorksheets || place == Place::kCells; }
  Place place() const { return places_[depth_ - 1]; }
  const char* step(const char* p, const char* end);
  const char* begin_document(const char* p);
  const char* read_key(const char* p, const char* end);
  const char* begin_value(const char* p);
  const char* read_value(const char* p, const char* end);
  const char* after_value(const char* p);
  void enter(Place place);
  void leave();
  void take_field();
  void take_language(std::string& into);
  void take_editor_language();
  void end_cell();
  void repair_text();
  std::uint64_t field_limit() const;
  const char* broken(const char* p, std::string_view why);
  std::string beginning_problem() const;

  NotebookLimits limits_;
  Notebook notebook_;
  Step step_ = Step::kDocument;
  std::array<Place, kMaxPlaces> places_{};
  std::size_t depth_ = 0;
  ValueSkipper skipper_;
  Field field_ = Field::kNone;  // of the value that is read now
  const Member* member_ = nullptr;
  bool keep_ = false;       // its bytes are wanted
  bool too_large_ = false;  // and were more than its limit
  std::string kept_;        // bytes of the value or key so far
  std::string beginning_;   // first bytes of the document, for what it is if it is no notebook
  std::uint64_t block_offset_ = 0;
  const char* block_ = nullptr;

  // The cell that is read now.
  std::string cell_type_, cell_language_, source_;
  bool source_is_input_ = false, source_too_large_ = false;
  std::size_t sheet_first_cell_ =
      0;  // where the innermost list of cells began: a second list of the same name replaces the first
  std::uint32_t sheet_first_number_ = 0;
  bool sheet_has_cells_ = false;
  std::uint32_t odd_cell_ = 0;  // the first code cell whose source could not be read as it should be
};

}  // namespace varve::notebooks
