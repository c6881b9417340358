#include "analyzer/notebooks/internal/statements.h"

#include <algorithm>

#include "analyzer/notebooks/internal/magic_table.h"
#include "analyzer/notebooks/internal/source_chars.h"
#include "analyzer/notebooks/internal/string_literal.h"

namespace varve::notebooks {

namespace {

constexpr std::size_t kMaxTokens = 4096;  // of one statement; more are dropped
constexpr std::size_t kMaxStatements = 200'000;
constexpr std::size_t kMaxOpenBlocks = 64;

constexpr std::string_view kTwoCharacterSigns[] = {
    "+=", "-=", "*=", "/=", "==", "!=", "<=", ">=", "->", ":=", "**", "//", "<<", ">>", "|=", "&="};

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : at_(text.data()), end_(at_ + text.size()), strings_(text), lines_(text) {}

  // The next statement that has tokens. False at the end.
  bool next(Statement& statement) {
    statement.tokens.clear();
    brackets_ = 0;
    while (at_ != end_) {
      if (statement.tokens.empty() && read_line_start(statement)) continue;
      if (at_ == end_) break;
      if (step(statement) && !statement.tokens.empty()) return true;
    }
    return !statement.tokens.empty();
  }

 private:
  // Indentation, and lines without code. True if a line was passed over.
  bool read_line_start(Statement& statement) {
    const char* line = at_;
    while (at_ != end_ && is_blank(*at_)) ++at_;
    if (at_ == end_) return false;
    const char c = *at_;
    if (is_newline(c)) {
      at_ = skip_newline(at_, end_);
    } else if (c == '#') {
      at_ = find_newline(at_, end_);
    } else if (c == '%' || c == '!' || c == '?') {
      at_ = find_line_end(at_, end_);
    } else {
      if (line == lines_start_ || is_newline(line[-1]))
        statement.indent = static_cast<int>(std::min<std::ptrdiff_t>(at_ - line, 10'000));
      statement.line = lines_.line_of(at_);
      return false;
    }
    return true;
  }

  // True where the statement ends.
  bool step(Statement& statement) {
    const char c = *at_;
    if (is_newline(c)) {
      at_ = skip_newline(at_, end_);
      return brackets_ == 0;
    }
    if (c == ';' && brackets_ == 0) {
      ++at_;
      return true;
    }
    if (is_blank(c)) {
      ++at_;
    } else if (c == '\\') {
      ++at_;
      if (at_ != end_ && is_newline(*at_)) at_ = skip_newline(at_, end_);
    } else if (c == '#') {
      at_ = find_newline(at_, end_);
    } else {
      read_token(statement, c);
    }
    return false;
  }

  void read_token(Statement& statement, char c) {
    const char* start = at_;
    if (c == '"' || c == '\'') {
      at_ = strings_.read(at_).end;
    } else if (is_word(c)) {
      at_ += std::max<std::size_t>(word_at(at_, end_).size(), 1);
    } else {
      const auto two = between(at_, end_).substr(0, 2);
      const bool sign =
          std::find(std::begin(kTwoCharacterSigns), std::end(kTwoCharacterSigns), two) != std::end(kTwoCharacterSigns);
      at_ += sign ? 2 : 1;
      if (c == '(' || c == '[' || c == '{') ++brackets_;
      if ((c == ')' || c == ']' || c == '}') && brackets_ > 0) --brackets_;
    }
    if (statement.tokens.size() < kMaxTokens) statement.tokens.push_back(between(start, at_));
  }

  const char* at_;
  const char* end_;
  const char* lines_start_ = at_;
  StringReader strings_;
  LineCounter lines_;
  int brackets_ = 0;
};

bool opens_block(std::string_view word) {
  static constexpr std::string_view kWords[] = {"for", "while", "if",  "elif",   "else",    "with",
                                                "def", "class", "try", "except", "finally", "async"};
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

bool is_python_cell(std::string_view text) {
  text = trimmed(text);
  if (!text.starts_with("%%")) return true;
  text.remove_prefix(2);
  const auto* facts = find_magic(word_at(text.data(), text.data() + text.size()));
  return facts && facts->body == MagicBody::kPython;
}

}  // namespace

bool Statement::has(std::string_view token) const {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

int Statement::find(std::initializer_list<std::string_view> sequence, int from) const {
  const auto found = std::search(tokens.begin() + from, tokens.end(), sequence.begin(), sequence.end());
  return found == tokens.end() ? -1 : static_cast<int>(found - tokens.begin());
}

StatementList::StatementList(const std::vector<Cell>& cells) {
  for (const auto& cell : cells) {
    if (is_python_cell(cell.text)) read_cell(cell);
  }
  ends_.resize(statements_.size());
  for (int i = size() - 1; i >= 0; --i) {
    auto& end = ends_[static_cast<std::size_t>(i)];
    end = std::max(end, i + 1);
    if (const int parent = (*this)[i].parent; parent >= 0) {
      auto& outer = ends_[static_cast<std::size_t>(parent)];
      outer = std::max(outer, end);
    }
  }
}

void StatementList::read_cell(const Cell& cell) {
  Tokenizer tokenizer(cell.text);
  std::vector<int> open;
  for (Statement statement; statements_.size() < kMaxStatements && tokenizer.next(statement);) {
    statement.cell = cell.number;
    add(Statement(statement), open);
  }
}

void StatementList::add(Statement&& statement, std::vector<int>& open) {
  while (!open.empty() && (*this)[open.back()].indent >= statement.indent) open.pop_back();
  statement.parent = open.empty() ? -1 : open.back();
  const bool opens = opens_block(statement.word());
  statements_.push_back(std::move(statement));
  if (opens && open.size() < kMaxOpenBlocks) open.push_back(size() - 1);
}

bool StatementList::has(std::string_view token) const {
  return std::any_of(statements_.begin(), statements_.end(), [&](const Statement& s) { return s.has(token); });
}

bool StatementList::has_any(std::initializer_list<std::string_view> tokens) const {
  return std::any_of(tokens.begin(), tokens.end(), [&](auto token) { return has(token); });
}

int StatementList::loop_of(int index) const {
  for (int at = (*this)[index].parent; at >= 0; at = (*this)[at].parent) {
    const auto word = (*this)[at].word();
    if (word == "for" || word == "while") return at;
    if (word == "def" || word == "class") return -1;
  }
  return -1;
}

int StatementList::function_of(int index) const {
  for (int at = (*this)[index].parent; at >= 0; at = (*this)[at].parent) {
    if ((*this)[at].word() == "def") return at;
  }
  return -1;
}

}  // namespace varve::notebooks
