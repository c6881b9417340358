#include "analyzer/notebooks/internal/shell_words.h"

#include <algorithm>

namespace varve::notebooks {

namespace {

constexpr std::size_t kMaxWords = 10'000;  // of one command; more are dropped
constexpr std::size_t kMaxHereDocuments = 16;

bool ends_command(char c) { return c == ';' || c == '|' || c == '&' || c == '(' || c == ')' || is_newline(c); }

}  // namespace

bool ShellSplitter::next(ShellCommand& command) {
  command.words.clear();
  command.place = nullptr;
  while (at_ != end_) {
    const char c = *at_;
    if (is_blank(c)) {
      ++at_;
    } else if (c == '\\' && at_ + 1 != end_ && is_newline(at_[1])) {
      at_ = skip_newline(at_ + 1, end_);
    } else if (c == '#') {
      at_ = find_newline(at_, end_);
    } else if (c == '&' && at_ + 1 != end_ && at_[1] == '>') {
      std::string none;
      ++at_;
      skip_redirection(command, none);
    } else if (c == '(' && at_ + 1 != end_ && at_[1] == ')') {  // a function is defined
      at_ += 2;
      command.words.clear();
      command.place = nullptr;
    } else if (ends_command(c)) {
      at_ = is_newline(c) ? skip_newline(at_, end_) : at_ + 1;
      if (is_newline(c)) skip_here_documents();
      if (!command.words.empty()) return true;
    } else {
      const char* place = at_;
      if (!read_word(command)) continue;
      if (!command.place) command.place = place;
    }
  }
  return !command.words.empty();
}

// False if what stands there leaves no word.
bool ShellSplitter::read_word(ShellCommand& command) {
  std::string word;
  bool quoted = false;
  while (at_ != end_ && !is_blank(*at_)) {
    const char c = *at_;
    if (c == '\'' || c == '"') {
      quoted = true;
      read_quoted(word, c);
    } else if (c == '`') {  // a command whose output becomes words
      const char* start = at_++;
      while (at_ != end_ && *at_ != '`') ++at_;
      if (at_ != end_) ++at_;
      word += between(start, at_);
    } else if (c == '\\') {
      ++at_;
      if (at_ == end_) break;
      if (is_newline(*at_)) {
        at_ = skip_newline(at_, end_);
        if (word.empty() && !quoted) return false;
      } else {
        word += *at_++;
      }
    } else if (c == '{') {
      read_braced(word, '{', '}');
    } else if (c == '$') {
      read_dollar(word);
    } else if ((c == '<' || c == '>') && (in_target_ || !is_version_sign(word))) {
      if (in_target_) break;
      skip_redirection(command, word);
      break;
    } else if (ends_command(c)) {
      break;
    } else {
      word += c;
      ++at_;
    }
  }
  if (word.empty() && !quoted) return false;
  if (command.words.size() < kMaxWords) command.words.push_back(std::move(word));
  return true;
}

void ShellSplitter::read_quoted(std::string& word, char quote) {
  for (++at_; at_ != end_ && *at_ != quote; ++at_) {
    if (quote == '"' && *at_ == '\\' && at_ + 1 != end_) {
      ++at_;
      if (is_newline(*at_)) continue;
      if (*at_ != '"' && *at_ != '\\' && *at_ != '$' && *at_ != '`') word += '\\';
    }
    word += *at_;
  }
  if (at_ != end_) ++at_;
}

// {sys.executable}, ${NAME}, $(command): to the closing bracket if it is on this line.
void ShellSplitter::read_braced(std::string& word, char open, char close) {
  int depth = 0;
  const char* at = at_ < unclosed_until_ ? end_ : at_;
  for (; at != end_ && !is_newline(*at); ++at) {
    if (*at == open) ++depth;
    if (*at == close && --depth == 0) break;
  }
  if (at == end_ || *at != close) {
    if (at_ >= unclosed_until_) unclosed_until_ = at;
    word += *at_++;
    return;
  }
  word += between(at_, at + 1);
  at_ = at + 1;
}

void ShellSplitter::read_dollar(std::string& word) {
  word += *at_++;
  if (at_ == end_) return;
  if (*at_ == '{')
    read_braced(word, '{', '}');
  else if (*at_ == '(')
    read_braced(word, '(', ')');
}

// `pip install numpy>=1.2`: a shell would write a file "=1.2", but that is not what was meant.
bool ShellSplitter::is_version_sign(const std::string& word) const {
  if (word.empty() || std::all_of(word.begin(), word.end(), is_digit)) return false;
  const char last = word.back();
  if (!is_word(last) && last != ']' && last != ',') return false;
  return at_ + 1 != end_ && (at_[1] == '=' || is_digit(at_[1]));
}

// `> file`, `2>&1`, `<<EOF`; a number just before it belongs to it.
void ShellSplitter::skip_redirection(ShellCommand& command, std::string& word) {
  if (std::all_of(word.begin(), word.end(), is_digit)) word.clear();
  const char sign = *at_;
  int signs = 0;
  while (at_ != end_ && (*at_ == '<' || *at_ == '>')) {
    ++at_;
    ++signs;
  }
  const bool here_document = sign == '<' && signs == 2;
  while (at_ != end_ && (*at_ == '&' || *at_ == '|' || (here_document && *at_ == '-'))) ++at_;
  at_ = skip_blanks(at_, end_);
  if (at_ == end_ || ends_command(*at_) || *at_ == '<' || *at_ == '>') return;
  const auto words = command.words.size();
  in_target_ = true;
  const bool target = read_word(command);
  in_target_ = false;
  if (target && command.words.size() > words) {
    if (here_document && here_documents_.size() < kMaxHereDocuments) here_documents_.push_back(command.words.back());
    command.words.pop_back();
  }
}

void ShellSplitter::skip_here_documents() {
  for (const auto& delimiter : here_documents_) {
    while (at_ != end_) {
      const char* stop = find_newline(at_, end_);
      const auto line = trimmed(between(at_, stop));
      at_ = skip_newline(stop, end_);
      if (line == delimiter) break;
    }
  }
  here_documents_.clear();
}

}  // namespace varve::notebooks
