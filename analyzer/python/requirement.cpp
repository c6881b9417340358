#include "analyzer/python/requirement.h"

#include <utility>

#include "analyzer/python/internal/text.h"
#include "core/base/text/strings.h"

namespace varve::python {

namespace {

constexpr std::string_view kBlanks = " \t";

// A name at the start of `text`, "" if none is there. It ends at its last letter, digit or "_".
std::string_view take_identifier(std::string_view& text) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_alnum(c) || (c == '_' && i > 0)) {
      end = i + 1;
    } else if (i == 0 || (c != '.' && c != '-')) {
      break;
    }
  }
  const auto name = text.substr(0, end);
  text = trimmed(text.substr(end), kBlanks);
  return name;
}

// "[a, b]" at the start of `text`, or nothing. False if it is broken.
bool take_extras(std::string_view& text, std::set<std::string>& extras) {
  if (!text.starts_with('[')) return true;
  text = trimmed(text.substr(1), kBlanks);
  for (bool first = true; !text.starts_with(']'); first = false) {
    if (!first) {
      if (!text.starts_with(',')) return false;
      text = trimmed(text.substr(1), kBlanks);
    }
    const auto name = take_identifier(text);
    if (name.empty()) return false;
    extras.insert(normalize_name(name));
  }
  text = trimmed(text.substr(1), kBlanks);
  return true;
}

// Versions with commas between them; one comma may follow the last.
bool read_specifier(std::string_view text, SpecifierSet& out) {
  auto inner = text;
  if (inner.starts_with('(')) {
    if (!inner.ends_with(')')) return false;
    inner = trimmed(inner.substr(1, inner.size() - 2), kBlanks);
  }
  for (auto rest = inner; !rest.empty();) {
    if (trimmed(take_until(rest, ','), kBlanks).empty()) return false;
    rest = trimmed(rest, kBlanks);
  }
  auto specifier = SpecifierSet::parse(text);
  if (!specifier) return false;
  out = std::move(*specifier);
  return true;
}

// The marker is what follows ";" after blanks: a URL itself may hold one.
bool read_url(std::string_view text, Requirement& out, std::string_view& marker, bool& has_marker) {
  const auto end = text.find_first_of(" \t");
  out.url = text.substr(0, end);
  if (out.url.empty()) return false;
  const auto rest = end == std::string_view::npos ? std::string_view() : trimmed(text.substr(end), kBlanks);
  if (rest.empty()) return true;
  has_marker = true;
  marker = rest.substr(1);
  return rest.starts_with(';');
}

// "dev:python_version<'3'" -> "(python_version<'3') and extra == 'dev'"
std::string section_marker(std::string_view section) {
  auto rest = section;
  const auto extra = trim(take_until(rest, ':'));
  const auto marker = trim(rest);
  if (extra.empty()) return std::string(marker);
  const auto asked = "extra == \"" + std::string(extra) + "\"";
  return marker.empty() ? asked : "(" + std::string(marker) + ") and " + asked;
}

}  // namespace

std::optional<Requirement> Requirement::parse(std::string_view text) {
  if (text.size() > kMaxRequirementBytes) return std::nullopt;
  Requirement out;
  out.text = text;
  auto rest = trimmed(text, kBlanks);
  out.name = take_identifier(rest);
  if (out.name.empty() || !take_extras(rest, out.extras)) return std::nullopt;
  out.normalized = normalize_name(out.name);
  std::string_view marker;
  bool has_marker = false;
  if (rest.starts_with('@')) {
    if (!read_url(trimmed(rest.substr(1), kBlanks), out, marker, has_marker)) return std::nullopt;
  } else {
    has_marker = rest.find(';') != std::string_view::npos;
    marker = rest;
    const auto specifier = trimmed(take_until(marker, ';'), kBlanks);
    if (!read_specifier(specifier, out.specifier)) return std::nullopt;
  }
  if (has_marker) {
    out.marker = Marker::parse(marker);
    if (!out.marker) return std::nullopt;
  }
  return out;
}

std::string requirement_name(std::string_view text) {
  text = trimmed(text, kBlanks);
  return std::string(take_identifier(text));
}

RequiresText parse_requires_txt(std::string_view text) {
  RequiresText out;
  std::set<std::string_view> extras;
  std::size_t read = 0;
  std::string marker;
  for (text = without_bom(text); !text.empty();) {
    const auto line = trim(take_line(text));
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with('[') && line.ends_with(']')) {
      const auto section = line.substr(1, line.size() - 2);
      marker = section_marker(section);
      const auto extra = trim(section.substr(0, section.find(':')));
      if (!extra.empty() && extras.insert(extra).second) out.extras.emplace_back(extra);
      continue;
    }
    read += line.size() + marker.size();
    auto requirement = read <= kMaxRequirementsBytes ? Requirement::parse(line) : std::nullopt;
    if (requirement && !marker.empty()) {
      const auto whole = requirement->marker ? "(" + requirement->marker->text() + ") and (" + marker + ")" : marker;
      requirement->marker = Marker::parse(whole);
      requirement->text += " ; " + whole;
      if (!requirement->marker) requirement.reset();
    }
    if (requirement) {
      out.requirements.push_back(std::move(*requirement));
    } else {
      out.unreadable.emplace_back(line);
    }
  }
  return out;
}

}  // namespace varve::python
