#include "analyzer/notebooks/internal/collector.h"

#include <utility>

#include "core/base/text/safe_text.h"

namespace varve::notebooks {

void Collector::add(Import import) {
  if (import.name.size() > kMaxNameBytes || out.imports.size() >= kMaxFindings) return;
  // Names and arguments go into databases and onto screens.
  import.name = single_line(import.name);
  import.module = single_line(import.module);
  import.cell = cell;
  import.written_file = written_file;
  import.in_function = in_function;
  const bool plain = import.kind == ImportKind::kImport || import.kind == ImportKind::kOptional;
  if (nested_kind && plain) import.kind = *nested_kind;
  out.imports.push_back(std::move(import));
}

void Collector::add(Install install) {
  if (written_file || out.installs.size() >= kMaxFindings) return;
  if (install.argument.size() > kMaxArgumentBytes) return;
  install.argument = single_line(install.argument);
  if (single_line(install.package) != install.package) install.package.clear();
  install.cell = cell;
  out.installs.push_back(std::move(install));
}

void Collector::add_library(std::string name) {
  if (written_file || name.empty() || name.size() > kMaxArgumentBytes || out.libraries.size() >= kMaxFindings) return;
  if (single_line(name) == name) out.libraries.push_back(std::move(name));
}

void Collector::add(BackendHit hit) {
  if (written_file || backend_hits.size() >= kMaxFindings) return;
  hit.cell = cell;
  backend_hits.push_back(std::move(hit));
}

}  // namespace varve::notebooks
