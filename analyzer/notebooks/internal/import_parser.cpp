#include "analyzer/notebooks/internal/import_parser.h"

#include <algorithm>
#include <array>

#include "analyzer/notebooks/internal/collector.h"
#include "analyzer/notebooks/internal/source_chars.h"

namespace varve::notebooks {

namespace {

constexpr int kMaxJoined = 16;  // statements that somebody forgot to put on lines of their own
constexpr std::size_t kMaxNames = 10'000;

class ImportParser {
 public:
  ImportParser(const char* at, const char* end, ImportStatement& out) : at_(at), start_(at), end_(end), out_(out) {}

  bool parse() {
    for (int joined = 0; joined < kMaxJoined; ++joined) {
      if (!parse_one()) return false;
      skip_space();
      if (at_terminator()) break;
      broken_ = true;
      if (!at_import()) {
        if (!may_follow()) return false;
        break;
      }
    }
    out_.rescued = broken_;
    out_.end = at_;
    return !out_.names.empty();
  }

 private:
  bool parse_one() {
    const auto word = word_at(at_, end_);
    at_ += word.size();
    skip_space();
    return word == "from" ? parse_from() : parse_modules();
  }

  bool parse_modules() {
    const auto before = out_.names.size();
    while (out_.names.size() < kMaxNames) {
      std::string name;
      if (!read_dotted(name)) break;
      out_.names.push_back({.name = name, .module = name});
      skip_space();
      if (!skip_alias()) break;
      if (!skip_char(',')) break;
      skip_space();
      if (at_terminator()) broken_ = true;
    }
    return out_.names.size() > before;
  }

  bool parse_from() {
    std::string module;
    while (skip_char('.')) {
      module += '.';
      skip_space();
      if (module.size() > kMaxNameBytes) return false;
    }
    if (!at_word("import") && !at_word("cimport")) {
      std::string name;
      if (!read_dotted(name)) return false;
      module += name;
      skip_space();
    }
    if (module.empty() || !skip_word_import()) return false;
    skip_space();
    if (skip_char('*')) {
      add_member(module, {});
      return true;
    }
    return parse_members(module);
  }

  bool parse_members(const std::string& module) {
    const auto before = out_.names.size();
    parentheses_ = skip_char('(');
    if (parentheses_) skip_space();
    while (out_.names.size() < kMaxNames) {
      const auto member = read_name();
      if (member.empty()) break;
      add_member(module, member);
      skip_space();
      if (!skip_alias()) break;
      if (!skip_char(',')) break;
      skip_space();
      if (!parentheses_ && at_terminator()) broken_ = true;
    }
    if (parentheses_) close_parentheses();
    if (out_.names.size() == before) {
      if (!at_terminator()) return false;
      broken_ = true;
      out_.names.push_back({.name = module, .module = module});
    }
    return true;
  }

  // What follows a list that is never closed is read again as lines of their own.
  void close_parentheses() {
    parentheses_ = false;
    if (skip_char(')')) return;
    broken_ = true;
    const char* line = at_;
    while (line != start_ && !is_newline(line[-1])) --line;
    if (line != start_) at_ = line - 1;
  }

  void add_member(const std::string& module, std::string_view member) {
    std::string name = module;
    if (!member.empty()) {
      if (name.back() != '.') name += '.';
      name += member;
    }
    out_.names.push_back({.name = std::move(name), .module = module});
  }

  bool read_dotted(std::string& name) {
    while (true) {
      const auto word = read_name();
      if (word.empty()) {
        broken_ = true;
        return !name.empty() && !at_quote();
      }
      if (!name.empty()) name += '.';
      name += word;
      if (name.size() > kMaxNameBytes) return false;
      const char* behind = at_;
      skip_space();
      if (!skip_char('.')) {
        at_ = behind;
        return true;
      }
      skip_space();
    }
  }

  std::string_view read_name() {
    const auto word = word_at(at_, end_);
    if (word.empty() || is_digit(word.front()) || is_python_keyword(word)) return {};
    at_ += word.size();
    return word;
  }

  // False if `as` stands there and no name.
  bool skip_alias() {
    if (!at_word("as")) return true;
    at_ += 2;
    skip_space();
    if (read_name().empty()) {
      broken_ = true;
      return false;
    }
    skip_space();
    return true;
  }

  bool skip_word_import() {
    if (at_word("import")) {
      at_ += 6;
    } else if (at_word("cimport")) {
      at_ += 7;
    } else {
      return false;
    }
    return true;
  }

  void skip_space() {
    while (at_ != end_) {
      if (is_blank(*at_)) {
        ++at_;
      } else if (*at_ == '\\') {
        const char* next = skip_blanks(at_ + 1, end_);
        if (next == end_ || !is_newline(*next)) return;
        if (next != at_ + 1) broken_ = true;
        at_ = skip_newline(next, end_);
      } else if (parentheses_ && is_newline(*at_)) {
        at_ = skip_newline(at_, end_);
      } else if (parentheses_ && *at_ == '#') {
        at_ = find_newline(at_, end_);
      } else if (const auto width = (*at_ & 0x80) != 0 ? foreign_space(at_, end_) : 0; width > 0) {
        broken_ = true;
        at_ += width;
      } else {
        return;
      }
    }
  }

  bool at_word(std::string_view word) const { return word_at(at_, end_) == word; }
  bool at_import() const { return at_word("import") || at_word("from"); }
  bool at_quote() const { return at_ != end_ && (*at_ == '"' || *at_ == '\''); }
  bool at_terminator() const { return at_ == end_ || is_newline(*at_) || *at_ == ';' || *at_ == '#'; }
  bool skip_char(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  // Whether what stands behind a broken import looks like code that slid there rather than like the rest of a sentence.
  bool may_follow() const {
    if (at_quote() || *at_ == '<') return false;
    if (!is_word(*at_)) return true;
    const auto word = word_at(at_, end_);
    if (word == "print") return true;
    const char* behind = skip_blanks(at_ + word.size(), end_);
    return behind != end_ && (*behind == '(' || *behind == '=' || *behind == '[' ||
                              (*behind == '.' && behind + 1 != end_ && is_word(behind[1])));
  }

  const char* at_;
  const char* start_;
  const char* end_;
  ImportStatement& out_;
  bool parentheses_ = false;
  bool broken_ = false;
};

}  // namespace

bool is_python_keyword(std::string_view word) {
  static constexpr std::array<std::string_view, 33> kKeywords = {
      "False",  "None",     "True",   "and",     "as",   "assert", "break",  "class", "continue", "def",  "del",
      "elif",   "else",     "except", "finally", "for",  "from",   "global", "if",    "import",   "in",   "is",
      "lambda", "nonlocal", "not",    "or",      "pass", "raise",  "return", "try",   "while",    "with", "yield"};
  return std::find(kKeywords.begin(), kKeywords.end(), word) != kKeywords.end();
}

bool parse_import(const char* at, const char* end, ImportStatement& out) {
  out.names.clear();
  out.rescued = false;
  out.end = at;
  if (ImportParser(at, end, out).parse()) return true;
  out.names.clear();
  return false;
}

}  // namespace varve::notebooks
