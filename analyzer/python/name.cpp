#include "analyzer/python/name.h"

#include <algorithm>

#include "analyzer/python/internal/text.h"
#include "core/base/text/image_path.h"

namespace varve::python {

namespace {

bool is_separator(char c) { return c == '-' || c == '_' || c == '.'; }

std::string_view last_component(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return name_of(path);
}

bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// "-py3.9" and what follows it. A name or version may hold "-py" too, so the last one that a digit follows counts.
void split_python_tag(std::string_view& stem, RecordName& out) {
  for (auto at = stem.rfind("-py"); at != std::string_view::npos && at > 0; at = stem.rfind("-py", at - 1)) {
    auto tail = stem.substr(at + 3);
    if (tail.empty() || !is_digit(tail.front())) continue;
    out.python = take_until(tail, '-');
    out.platform = tail;
    stem = stem.substr(0, at);
    return;
  }
}

// Escaped names hold no "-", so the first one ends the name; older tools left "-" in names, and versions begin with a
// digit there.
void split_version(std::string_view stem, RecordName& out) {
  auto at = stem.find('-');
  for (auto next = at; next != std::string_view::npos; next = stem.find('-', next + 1)) {
    if (next + 1 < stem.size() && is_digit(stem[next + 1])) {
      at = next;
      break;
    }
  }
  out.name = stem.substr(0, at);
  if (at != std::string_view::npos) out.version = stem.substr(at + 1);
}

}  // namespace

std::string normalize_name(std::string_view name) {
  std::string out;
  out.reserve(name.size());
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (!is_separator(name[i])) {
      out += lower(name[i]);
    } else if (i == 0 || !is_separator(name[i - 1])) {
      out += '-';
    }
  }
  return out;
}

bool is_name(std::string_view text) {
  return !text.empty() && is_alnum(text.front()) && is_alnum(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_alnum(c) || is_separator(c); });
}

std::optional<RecordName> parse_record_name(std::string_view file_name) {
  auto stem = last_component(file_name);
  RecordName out;
  if (take_suffix(stem, ".dist-info")) {
    split_version(stem, out);
  } else if (take_suffix(stem, ".egg-info") || take_suffix(stem, ".egg")) {
    split_python_tag(stem, out);
    split_version(stem, out);
  } else {
    return std::nullopt;
  }
  if (out.name.empty()) return std::nullopt;
  return out;
}

}  // namespace varve::python
