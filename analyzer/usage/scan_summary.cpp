#include "analyzer/usage/scan_summary.h"

#include <algorithm>
#include <functional>
#include <set>

#include "core/base/text/strings.h"

namespace varve::usage {

void ScanSummary::add(const notebooks::ScannedFile& file) {
  ++files_;
  if (!file.duplicate_of.empty()) return void(++duplicates_);
  ++languages_[file.language.empty() ? "unknown" : file.language];
  count_imports(file);
  count_installs(file);
}

ScanSummary::Row ScanSummary::row_of(const notebooks::Import& import) const {
  return {import.name.substr(0, import.name.find('.')), joined(names_.of(import))};
}

void ScanSummary::count_imports(const notebooks::ScannedFile& file) {
  std::map<Row, bool> only_optional;
  for (const auto& import : file.imports) {
    if (import.local || import.unknown_name || names_.is_stdlib(import)) continue;
    const auto row = only_optional.try_emplace(row_of(import), true).first;
    row->second = row->second && import.kind == notebooks::ImportKind::kOptional;
  }
  for (const auto& [row, optional] : only_optional) {
    auto& count = uses_[row];
    ++count.notebooks;
    count.optional += optional ? 1 : 0;
  }
}

void ScanSummary::count_installs(const notebooks::ScannedFile& file) {
  std::set<std::string> installed;
  for (const auto& install : file.installs) {
    if (install.remove) continue;
    installed.insert(install.tool + " " + (install.package.empty() ? install.argument : install.package));
  }
  for (const auto& what : installed) ++installs_[what];
}

std::vector<ScanSummary::Use> ScanSummary::uses() const {
  std::vector<Use> list;
  for (const auto& [row, count] : uses_) list.push_back({row.first, row.second, count.notebooks, count.optional});
  std::ranges::stable_sort(list, std::greater(), &Use::notebooks);
  return list;
}

std::vector<ScanSummary::Install> ScanSummary::installs() const {
  std::vector<Install> list;
  for (const auto& [what, notebooks] : installs_) list.push_back({what, notebooks});
  std::ranges::stable_sort(list, std::greater(), &Install::notebooks);
  return list;
}

}  // namespace varve::usage
