#pragma once
// What must hold for whatever is found in any text.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "analyzer/notebooks/findings.h"
#include "core/base/text/utf8.h"

// In a file read whole, too, whose lines are those of its cells.
template <typename Found>
void check_texts(const Found& found) {
  using varve::is_utf8;
  for (const auto& import : found.imports)
    if (import.name.empty() != import.unknown_name || !import.name.starts_with(import.module) || !is_utf8(import.name))
      std::abort();
  for (const auto& install : found.installs) {
    if (install.tool.empty() || !is_utf8(install.argument)) std::abort();
    if (install.argument.find_first_of(std::string_view("\0\r\n", 3)) != std::string::npos) std::abort();
  }
  for (const auto& backend : found.backends)
    if (backend.module.empty() || backend.call.empty()) std::abort();
  for (const auto& hint : found.hints)
    if (hint.kind.empty() || hint.text.empty() || !is_utf8(hint.text)) std::abort();
}

inline void check_findings(const varve::notebooks::Findings& findings, std::string_view text) {
  using namespace varve::notebooks;
  const auto lines = static_cast<std::uint32_t>(std::count(text.begin(), text.end(), '\n') +
                                                std::count(text.begin(), text.end(), '\r') + 1);
  const auto in_text = [&](std::uint32_t line) { return line >= 1 && line <= lines; };
  if (findings.imports.size() > kMaxFindings || findings.installs.size() > kMaxFindings) std::abort();
  check_texts(findings);
  std::uint32_t last = 0;
  for (const auto& found : findings.imports) {
    if (!in_text(found.line) || found.line < last) std::abort();
    last = found.line;
  }
  const auto check_lines = [&](const auto& list) {
    for (const auto& found : list)
      if (!in_text(found.line)) std::abort();
  };
  check_lines(findings.installs);
  check_lines(findings.backends);
  check_lines(findings.hints);
  for (const auto& library : findings.libraries) {
    if (library.empty() || library.find_first_of(std::string_view("\0\r\n", 3)) != std::string::npos) std::abort();
  }
}
