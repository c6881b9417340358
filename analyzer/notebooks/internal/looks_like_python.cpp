#include "analyzer/notebooks/internal/looks_like_python.h"

#include <algorithm>
#include <array>

#include "analyzer/notebooks/internal/import_parser.h"
#include "analyzer/notebooks/internal/source_chars.h"
#include "analyzer/notebooks/internal/string_literal.h"

namespace varve::notebooks {

namespace {

// Behind these a word may stand that is no operator; the soft ones begin a line.
bool lets_word_follow(std::string_view word, bool begins_line) {
  static constexpr std::array<std::string_view, 9> kSoft = {"match", "case",  "type", "print", "exec",
                                                            "async", "await", "lazy", "cdef"};
  return is_python_keyword(word) || word == "async" || word == "await" ||
         (begins_line && std::find(kSoft.begin(), kSoft.end(), word) != kSoft.end());
}

class Judge {
 public:
  explicit Judge(std::string_view text) : at_(text.data()), end_(at_ + text.size()), strings_(text) {}

  bool accepts() {
    while (at_ != end_) {
      if (!step()) return false;
    }
    return brackets_ == 0;
  }

 private:
  bool step() {
    const char c = *at_;
    if (is_newline(c)) {
      at_ = skip_newline(at_, end_);
      if (brackets_ == 0) begin_line();
      return true;
    }
    if (is_blank(c)) return ++at_, true;
    if (c == '#') return at_ = find_newline(at_, end_), true;
    if (c == '"' || c == '\'') return read_string();
    if (is_word(c)) return read_word();
    return read_sign(c);
  }

  void begin_line() {
    begins_line_ = true;
    last_word_ = {};
  }

  bool read_string() {
    const auto literal = strings_.read(at_);
    if (!literal.terminated) return false;
    at_ = literal.end;
    begins_line_ = false;
    last_word_ = {};
    return true;
  }

  bool read_word() {
    const auto word = word_at(at_, end_);
    if (word.empty()) return false;
    if (!last_word_.empty() && !lets_word_follow(last_word_, last_begins_line_) && !is_python_keyword(word))
      return false;
    last_begins_line_ = begins_line_;
    last_word_ = word;
    begins_line_ = false;
    at_ += word.size();
    return true;
  }

  bool read_sign(char c) {
    if (begins_line_ && (c == '%' || c == '!')) {  // a magic's line
      at_ = find_line_end(at_, end_);
      return true;
    }
    if (c == '\\') {
      ++at_;
      if (at_ == end_ || !is_newline(*at_)) return false;
      at_ = skip_newline(at_, end_);
      return true;
    }
    if (c == '$' || c == '?' || c == '`') return false;
    if (c == '!' && (at_ + 1 == end_ || at_[1] != '=')) return false;
    if (begins_line_ && std::string_view("<>/;=|&^,.:").find(c) != std::string_view::npos && brackets_ == 0)
      return false;
    if (c == '(' || c == '[' || c == '{') ++brackets_;
    if ((c == ')' || c == ']' || c == '}') && --brackets_ < 0) return false;
    begins_line_ = false;
    last_word_ = {};
    ++at_;
    return true;
  }

  const char* at_;
  const char* end_;
  StringReader strings_;
  std::string_view last_word_;
  bool last_begins_line_ = false;
  bool begins_line_ = true;
  int brackets_ = 0;
};

}  // namespace

bool looks_like_python(std::string_view text) { return Judge(text).accepts(); }

}  // namespace varve::notebooks
