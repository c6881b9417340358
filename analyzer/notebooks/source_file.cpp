#include "analyzer/notebooks/source_file.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "analyzer/notebooks/internal/coding_line.h"
#include "analyzer/notebooks/language.h"
#include "analyzer/notebooks/script_cells.h"
#include "core/base/bytes.h"
#include "core/base/text/utf8.h"

namespace varve::notebooks {
namespace {

constexpr std::size_t kMaxWrittenModules = 1000;
constexpr std::size_t kMaxIdleBytes = 16u << 20;  // of the last file, kept for the next one

const char* format_of(FileKind kind) {
  switch (kind) {
    case FileKind::kNotebook:
      return "ipynb";
    case FileKind::kR:
      return "r";
    case FileKind::kJulia:
      return "julia";
    case FileKind::kMarkdown:
      return "rmarkdown";
    default:
      return "script";
  }
}

// The length goes first, so that code moved from one cell to the next is other code.
void digest_cell(Sha256& sum, std::string_view text) {
  std::array<std::byte, 8> size{};
  store_le<std::uint64_t>(size.data(), text.size());
  sum.update(size);
  sum.update(std::as_bytes(std::span(text)));
}

}  // namespace

SourceFileReader::SourceFileReader(const ScanOptions& options)
    : options_(options),
      notebook_(NotebookLimits{.max_cell_bytes = options.max_cell_bytes, .max_code_bytes = options.max_code_bytes}) {}

void SourceFileReader::start(FileKind kind, std::string path) {
  kind_ = kind;
  outcome_ = SourceOutcome();
  outcome_.file.path = std::move(path);
  outcome_.file.format = format_of(kind);
  python_.clear();
  written_.clear();
  text_.clear();
  if (text_.capacity() > kMaxIdleBytes) text_ = std::string();
}

bool SourceFileReader::has_room(std::uint64_t bytes) {
  const auto most = kind_ == FileKind::kNotebook ? options_.max_notebook_bytes : options_.max_cell_bytes;
  if (bytes <= most) return true;
  outcome_.problems.push_back(fmt::format("larger than {} bytes, not read", most));
  text_ = std::string();
  kind_ = FileKind::kOther;  // nothing more of it
  return false;
}

bool SourceFileReader::feed(std::string_view block) {
  outcome_.bytes += block.size();
  if (!has_room(text_.size() + block.size())) return false;
  text_ += block;
  return true;
}

void SourceFileReader::add_cell(std::string_view text, std::uint32_t number, const std::string& language) {
  if (language != "python") return;
  python_.push_back({.text = text, .number = number});
  if (written_.size() < kMaxWrittenModules) add_written_modules(text, written_);
}

void SourceFileReader::read_python_cells() {
  auto findings = read_python(python_);
  outcome_.file.imports = std::move(findings.imports);
  outcome_.file.installs = std::move(findings.installs);
  outcome_.file.hints = std::move(findings.hints);
  outcome_.file.backends = std::move(findings.backends);
}

void SourceFileReader::finish_notebook() {
  auto notebook = notebook_.read(std::move(text_));
  auto& file = outcome_.file;
  std::move(notebook.problems.begin(), notebook.problems.end(), std::back_inserter(outcome_.problems));
  outcome_.readable = notebook.is_notebook;
  if (!notebook.is_notebook) return;
  file.nbformat = notebook.nbformat;
  file.code_cells = notebook.code_cells;
  file.language = language_of_notebook(notebook.kernel_language, notebook.language_name, notebook.kernel_name);
  Sha256 sum;
  std::string told;
  std::size_t code_bytes = 0;
  for (const auto& cell : notebook.cells) {
    digest_cell(sum, notebook.text_of(cell));
    code_bytes += cell.size;
    if (told.empty()) told = language_of_name(cell.language);
  }
  if (file.language.empty()) file.language = !told.empty() ? told : language_of_text(notebook.text);
  if (code_bytes != 0) file.code_digest = sum.finish();
  for (const auto& cell : notebook.cells) {
    const auto own = language_of_name(cell.language);
    const auto kernel = own == "python" || own == "r" || own == "julia" ? own : language_of_kernel(cell.language);
    add_cell(notebook.text_of(cell), cell.number, own.empty() ? file.language : kernel.empty() ? own : kernel);
  }
  read_python_cells();
}

void SourceFileReader::decode_script() {
  const auto coding = kind_ == FileKind::kPython ? declared_coding(text_) : std::string();
  if (is_latin1(coding)) {
    text_ = utf8_of_latin1(text_);
    return;
  }
  text_ = repair_utf8(text_);
  const bool other = !coding.empty() && coding != "utf-8" && coding != "utf8";
  outcome_.problems.push_back(other ? fmt::format("written in {}: what is not ASCII is read as U+FFFD", coding)
                                    : "bytes that are not UTF-8: read as U+FFFD");
}

void SourceFileReader::finish_script() {
  auto& file = outcome_.file;
  outcome_.readable = true;
  if (std::string_view(text_).starts_with(kByteOrderMark)) text_.erase(0, kByteOrderMark.size());
  if (!is_utf8(text_)) decode_script();
  const auto cells = kind_ == FileKind::kMarkdown ? chunks_of_markdown(text_) : cells_of_script(text_);
  file.language = kind_ == FileKind::kPython  ? "python"
                  : kind_ == FileKind::kR     ? "r"
                  : kind_ == FileKind::kJulia ? "julia"
                                              : "";
  Sha256 sum;
  std::size_t code_bytes = 0;
  for (const auto& cell : cells.cells) {
    digest_cell(sum, cell.text);
    code_bytes += cell.text.size();
    if (cell.number != 0) ++file.code_cells;
    const auto language = cell.language.empty() ? file.language : language_of_name(cell.language);
    add_cell(cell.text, cell.number, language);
    if (file.language.empty()) file.language = language;
  }
  if (code_bytes != 0) file.code_digest = sum.finish();
  read_python_cells();
}

void SourceFileReader::mark_local(const LocalLookup& local) {
  std::string last_name;
  bool last = false;
  const auto is_local = [&](const std::string& name) {
    auto sure = local(name);
    for (const auto& [written, how] : written_)
      if (written == name) sure = std::max(sure, how);
    return sure == Local::kYes ||
           (sure == Local::kPerhaps && !(options_.is_distribution && options_.is_distribution(name)));
  };
  for (auto& import : outcome_.file.imports) {
    if (import.local || import.module.empty()) continue;
    auto name = import.module.substr(0, import.module.find('.'));
    if (name.empty()) continue;
    if (name != last_name) {
      last = is_local(name);
      last_name = std::move(name);
    }
    import.local = last;
  }
}

SourceOutcome SourceFileReader::finish(const LocalLookup& local) {
  if (kind_ == FileKind::kNotebook) {
    finish_notebook();
  } else if (kind_ != FileKind::kOther) {
    finish_script();
  }
  mark_local(local);
  return std::move(outcome_);
}

}  // namespace varve::notebooks
