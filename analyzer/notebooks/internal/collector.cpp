#include "analyzer/notebooks/internal/collector.h"

#include <algorithm>
#include <utility>

#include "core/base/utf8.h"

namespace varve::notebooks {

namespace {

bool is_printable(std::string_view text) {
  return is_utf8(text) &&
         std::none_of(text.begin(), text.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7F; });
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto length = utf8_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length == 1 && (static_cast<unsigned char>(text.front()) < ' ' || text.front() == 0x7F)) {
      out += ' ';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

void Collector::add(Import import) {
  if (import.name.size() > kMaxNameBytes || out.imports.size() >= kMaxFindings) return;
  if (!is_printable(import.name)) {
    import.name = printable(import.name);
    import.module = printable(import.module);
  }
  import.cell = cell;
  import.written_file = written_file;
  const bool plain = import.kind == ImportKind::kImport || import.kind == ImportKind::kOptional;
  if (nested_kind && plain) import.kind = *nested_kind;
  out.imports.push_back(std::move(import));
}

void Collector::add(Install install) {
  if (written_file || out.installs.size() >= kMaxFindings) return;
  if (install.argument.size() > kMaxArgumentBytes) return;
  if (!is_printable(install.argument)) install.argument = printable(install.argument);
  if (!is_printable(install.package)) install.package.clear();
  install.cell = cell;
  out.installs.push_back(std::move(install));
}

}  // namespace varve::notebooks
