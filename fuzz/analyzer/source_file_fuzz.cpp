// Any bytes as a file of each kind, from its encoding to what is found in it. The first byte: the kind, and where its
// blocks are cut; in what blocks it comes makes no difference.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/notebooks/source_file.h"
#include "fuzz/analyzer/source_findings_check.h"

namespace {

using namespace varve::notebooks;

SourceOutcome read_file_in(FileKind kind, std::string_view first, std::string_view second) {
  static const ScanOptions options{
      .max_cell_bytes = 1 << 14, .max_notebook_bytes = 1 << 15, .max_code_bytes = 1 << 15, .is_distribution = {}};
  static SourceFileReader reader(options);
  reader.start(kind, "file");
  if (reader.feed(first)) reader.feed(second);
  return reader.finish([](std::string_view name) { return name == "os" ? Local::kPerhaps : Local::kNo; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr FileKind kKinds[] = {FileKind::kNotebook, FileKind::kPython, FileKind::kR, FileKind::kJulia,
                                 FileKind::kMarkdown};
  const auto kind = kKinds[data[0] % std::size(kKinds)];
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto cut = text.size() * (data[0] / std::size(kKinds)) / 64;
  const auto whole = read_file_in(kind, text, "");
  const auto in_two = read_file_in(kind, text.substr(0, cut), text.substr(cut));
  check_texts(whole.file);
  if (whole.readable != in_two.readable || whole.bytes != in_two.bytes || whole.problems != in_two.problems ||
      whole.file.code_digest != in_two.file.code_digest || whole.file.imports.size() != in_two.file.imports.size())
    std::abort();
  return 0;
}
