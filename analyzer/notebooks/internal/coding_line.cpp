#include "analyzer/notebooks/internal/coding_line.h"

#include <algorithm>
#include <array>

#include "core/base/text/utf8.h"

namespace varve::notebooks {
namespace {

constexpr std::size_t kMaxNameBytes = 40;

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// "^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)" of PEP 263.
std::string coding_of_line(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t\f"), line.size()));
  if (!line.starts_with('#')) return {};
  constexpr std::string_view kWord = "coding";
  for (auto at = line.find(kWord); at != line.npos; at = line.find(kWord, at + 1)) {
    auto rest = line.substr(at + kWord.size());
    if (!rest.starts_with(':') && !rest.starts_with('=')) continue;
    rest.remove_prefix(1);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    std::string name;
    for (const char c : rest.substr(0, kMaxNameBytes)) {
      if (!is_of_name(c)) break;
      name += c == '_' ? '-' : c >= 'A' && c <= 'Z' ? char(c | 0x20) : c;
    }
    if (!name.empty()) return name;
  }
  return {};
}

bool is_blank_or_comment(std::string_view line) {
  const auto first = line.find_first_not_of(" \t\f\r");
  return first == line.npos || line[first] == '#';
}

}  // namespace

std::string declared_coding(std::string_view text) {
  for (int number = 1; number <= 2; ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = text.substr(0, end);
    if (auto coding = coding_of_line(line); !coding.empty() || !is_blank_or_comment(line)) return coding;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

bool is_latin1(std::string_view coding) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"latin-1", "latin1", "latin", "l1", "iso-8859-1", "iso8859-1", "8859", "cp819",
                                       "iso-ir-100", "iso-8859-1-1987"});
  // Python takes "latin-1-unix" of Emacs, too.
  for (const std::string_view ending : {"-unix", "-dos", "-mac"})
    if (coding.ends_with(ending)) coding.remove_suffix(ending.size());
  return std::find(kNames.begin(), kNames.end(), coding) != kNames.end();
}

std::string utf8_of_latin1(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (const char c : text) append_utf8(static_cast<unsigned char>(c), out);
  return out;
}

}  // namespace varve::notebooks
