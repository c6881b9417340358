#pragma once
// What must hold for whatever is found in any text.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "analyzer/notebooks/findings.h"
#include "core/base/utf8.h"

inline void check_findings(const varve::notebooks::Findings& findings, std::string_view text) {
  using namespace varve::notebooks;
  const auto lines = static_cast<std::uint32_t>(std::count(text.begin(), text.end(), '\n') +
                                                std::count(text.begin(), text.end(), '\r') + 1);
  const auto in_text = [&](std::uint32_t line) { return line >= 1 && line <= lines; };
  if (findings.imports.size() > kMaxFindings || findings.installs.size() > kMaxFindings) std::abort();
  std::uint32_t last = 0;
  for (const auto& found : findings.imports) {
    if (!in_text(found.line) || found.line < last || found.name.empty() != found.unknown_name) std::abort();
    if (!found.name.starts_with(found.module) || !varve::is_utf8(found.name)) std::abort();
    last = found.line;
  }
  for (const auto& found : findings.installs) {
    if (!in_text(found.line) || found.tool.empty() || !varve::is_utf8(found.argument)) std::abort();
    if (found.argument.find_first_of(std::string_view("\0\r\n", 3)) != std::string::npos) std::abort();
  }
  for (const auto& backend : findings.backends) {
    if (!in_text(backend.line) || backend.module.empty() || backend.call.empty()) std::abort();
  }
  for (const auto& library : findings.libraries) {
    if (library.empty() || library.find_first_of(std::string_view("\0\r\n", 3)) != std::string::npos) std::abort();
  }
  for (const auto& hint : findings.hints) {
    if (!in_text(hint.line) || hint.kind.empty() || hint.text.empty() || !varve::is_utf8(hint.text)) std::abort();
  }
}
