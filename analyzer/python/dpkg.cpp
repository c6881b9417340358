#include "analyzer/python/dpkg.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "analyzer/python/internal/text.h"
#include "core/base/text/image_path.h"

namespace varve::python {

namespace {

bool is_package_name(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return is_alnum(c) || c == '+' || c == '-' || c == '.' || c == '_'; });
}

// "name:arch (>= 1.0) [amd64] <!cross>": the restrictions in brackets were settled when the package was built.
std::optional<DpkgAlternative> read_alternative(std::string_view text) {
  DpkgAlternative out;
  const auto open = text.find('(');
  auto head = trim(text.substr(0, std::min(open, text.find_first_of("[<"))));
  out.name = trim(take_until(head, ':'));
  out.architecture = trim(head);
  if (!is_package_name(out.name)) return std::nullopt;
  if (open == std::string_view::npos) return out;
  auto inner = text.substr(open + 1);
  const auto close = inner.find(')');
  if (close == std::string_view::npos) return std::nullopt;
  inner = trim(inner.substr(0, close));
  const auto relation = inner.substr(0, std::min(inner.find_first_not_of("<>="), inner.size()));
  out.version = trim(inner.substr(relation.size()));
  // "<" and ">" meant "or equal" in old packages.
  out.relation = relation == "<" ? "<=" : relation == ">" ? ">=" : relation;
  if (out.relation.empty()) out.relation = "=";
  if (out.version.empty()) return std::nullopt;
  return out;
}

bool has_files(std::string_view status) {
  const auto state = status.substr(std::min(status.rfind(' ') + 1, status.size()));
  return state == "installed" || state == "unpacked" || state == "half-configured" || state == "triggers-awaited" ||
         state == "triggers-pending";
}

std::optional<std::uint64_t> read_kibibytes(std::string_view text) {
  std::uint64_t value = 0;
  const auto* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || value > std::numeric_limits<std::uint64_t>::max() / 1024)
    return std::nullopt;
  return value * 1024;
}

// One stanza, field by field.
struct Stanza {
  DpkgPackage package;
  std::vector<DpkgDependency> pre_depends;
  bool begun = false, broken = false;
  std::uint64_t line = 0;

  void take(std::string_view name, std::string_view value) {
    if (name == "package") {
      package.name = value;
    } else if (name == "version") {
      package.version = value;
    } else if (name == "architecture") {
      package.architecture = value;
    } else if (name == "multi-arch") {
      package.multi_arch = value == "no" ? std::string_view() : value;
    } else if (name == "source") {
      package.source = value.substr(0, value.find(' '));  // "name (version)" where they differ
    } else if (name == "section") {
      package.section = value;
    } else if (name == "status") {
      package.status = value;
    } else if (name == "essential") {
      package.essential = value == "yes";
    } else if (name == "installed-size") {
      package.installed_bytes = read_kibibytes(value);
    } else {
      take_relations(name, value);
    }
  }
  void take_relations(std::string_view name, std::string_view value) {
    if (name == "pre-depends") {
      pre_depends = parse_dpkg_dependencies(value);
    } else if (name == "depends") {
      package.depends = parse_dpkg_dependencies(value);
    } else if (name == "recommends") {
      package.recommends = parse_dpkg_dependencies(value);
    } else if (name == "provides") {
      package.provides.clear();
      for (auto& alternatives : parse_dpkg_dependencies(value)) {
        for (auto& provided : alternatives) package.provides.push_back(std::move(provided));
      }
    }
  }
};

void finish(Stanza& stanza, DpkgFile kind, DpkgTally& tally, const std::function<void(const DpkgPackage&)>& got) {
  auto done = std::exchange(stanza, {});
  if (!done.begun) return;
  auto& package = done.package;
  if (!is_package_name(package.name) || done.broken) {
    if (tally.unreadable++ == 0) tally.first_unreadable = done.line;
    if (!is_package_name(package.name)) return;
  }
  if (package.source.empty()) package.source = package.name;
  package.installed =
      kind == DpkgFile::kStatusD ? package.status.empty() || has_files(package.status) : has_files(package.status);
  package.depends.insert(package.depends.begin(), std::make_move_iterator(done.pre_depends.begin()),
                         std::make_move_iterator(done.pre_depends.end()));
  ++tally.packages;
  got(package);
}

}  // namespace

DpkgTally read_dpkg_status(std::string_view text, DpkgFile kind, const std::function<void(const DpkgPackage&)>& got) {
  DpkgTally tally;
  Stanza stanza;
  text = without_bom(text);
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const auto line = take_line(text);
    if (trim(line).empty()) {
      finish(stanza, kind, tally, got);
      continue;
    }
    if (line.starts_with('#')) continue;
    if (!std::exchange(stanza.begun, true)) stanza.line = number;
    const auto colon = line.find(':');
    if (is_blank(line.front()) ||
        colon == std::string_view::npos) {  // the rest of a field whose first line was no field, or no field
      stanza.broken = true;
      continue;
    }
    const char* const value = line.data() + colon + 1;
    const char* end = line.data() + line.size();
    while (!text.empty() && is_blank(text.front()) && !trim(text.substr(0, text.find_first_of("\r\n"))).empty()) {
      const auto folded = take_line(text);
      end = folded.data() + folded.size();
      ++number;
    }
    const std::string_view whole(value, std::size_t(end - value));
    stanza.take(to_lower(line.substr(0, colon)), trim(whole.substr(0, kMaxDpkgFieldBytes)));
  }
  finish(stanza, kind, tally, got);
  return tally;
}

std::vector<DpkgDependency> parse_dpkg_dependencies(std::string_view text) {
  std::vector<DpkgDependency> out;
  while (!text.empty()) {
    auto choices = take_until(text, ',');
    DpkgDependency dependency;
    while (!choices.empty()) {
      if (auto alternative = read_alternative(trim(take_until(choices, '|'))))
        dependency.push_back(std::move(*alternative));
    }
    if (!dependency.empty()) out.push_back(std::move(dependency));
  }
  return out;
}

void read_dpkg_list(std::string_view text, const std::function<void(std::string_view path)>& got) {
  while (!text.empty()) {
    const auto line = take_until(text, '\n');
    const auto path = without_leading_slashes(line);
    if (line.starts_with('/') && !path.empty() && path != ".") got(path);
  }
}

void read_dpkg_md5sums(std::string_view text,
                       const std::function<void(std::string_view path, std::string_view md5)>& got) {
  constexpr std::size_t kDigits = 32;
  while (!text.empty()) {
    const auto line = take_until(text, '\n');
    if (line.size() < kDigits + 3 || line[kDigits] != ' ' || (line[kDigits + 1] != ' ' && line[kDigits + 1] != '*'))
      continue;
    const auto md5 = line.substr(0, kDigits);
    auto path = without_leading_slashes(line.substr(kDigits + 2));
    if (path.starts_with("./")) path.remove_prefix(2);
    if (!path.empty() && std::ranges::all_of(md5, is_alnum)) got(path, md5);
  }
}

std::optional<DpkgInfoName> parse_dpkg_info_name(std::string_view file_name) {
  const auto dot = file_name.rfind('.');
  if (dot == std::string_view::npos || dot + 1 == file_name.size()) return std::nullopt;
  DpkgInfoName out;
  out.kind = file_name.substr(dot + 1);
  auto stem = file_name.substr(0, dot);
  out.package = take_until(stem, ':');
  out.architecture = stem;
  if (!is_package_name(out.package)) return std::nullopt;
  return out;
}

}  // namespace varve::python
