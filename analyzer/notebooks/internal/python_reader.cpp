#include "analyzer/notebooks/internal/python_reader.h"

#include <array>

#include "analyzer/notebooks/internal/magics.h"
#include "core/base/text/utf8.h"

namespace varve::notebooks {

namespace {

enum Special : std::uint8_t {
  kPlain,
  kNewline,
  kBackslash,
  kHash,
  kQuote,
  kParenthesis,
  kOpen,
  kClose,
  kSemicolon,
  kColon,
  kEscape
};

constexpr std::array<std::uint8_t, 256> kSpecials = [] {
  std::array<std::uint8_t, 256> table{};
  table['\n'] = table['\r'] = kNewline;
  table['\\'] = kBackslash;
  table['#'] = kHash;
  table['"'] = table['\''] = kQuote;
  table['('] = kParenthesis;
  table['['] = table['{'] = kOpen;
  table[')'] = table[']'] = table['}'] = kClose;
  table[';'] = kSemicolon;
  table[':'] = kColon;
  table['!'] = table['%'] = kEscape;
  return table;
}();

Special special(char c) { return static_cast<Special>(kSpecials[static_cast<unsigned char>(c)]); }

bool begins_block(std::string_view word) {
  switch (word.empty() ? '\0' : word.front()) {
    case 'i':
      return word == "if";
    case 'e':
      return word == "else" || word == "elif" || word == "except";
    case 't':
      return word == "try";
    case 'f':
      return word == "for" || word == "finally";
    case 'w':
      return word == "with" || word == "while";
    case 'd':
      return word == "def";
    case 'c':
      return word == "class" || word == "case";
    case 'a':
      return word == "async";
    case 'm':
      return word == "match";
    default:
      return false;
  }
}

// Words with which no line inside brackets can begin.
bool never_in_brackets(std::string_view word, char behind) {
  switch (word.empty() ? '\0' : word.front()) {
    case 'd':
      return (word == "def" || word == "del") && is_blank(behind);
    case 'c':
      return word == "class" && is_blank(behind);
    case 't':
      return word == "try" && behind == ':';
    case 'w':
      return (word == "with" || word == "while") && is_blank(behind);
    case 'r':
      return (word == "return" || word == "raise") && is_blank(behind);
    default:
      return false;
  }
}

}  // namespace

void PythonReader::read() {
  if (source_.text.starts_with(kByteOrderMark)) at_ += kByteOrderMark.size();
  in_function_ = out_.in_function;  // of what holds this text
  while (at_ != end_) read_line();
  out_.in_function = in_function_;
}

// False at the text's end.
bool PythonReader::read_indent() {
  indent_ = 0;
  for (; at_ != end_; ++at_) {
    switch (*at_) {
      case ' ':
        ++indent_;
        break;
      case '\t':
        indent_ = (indent_ / 8 + 1) * 8;
        break;
      case '\f':
        indent_ = 0;
        break;
      case '\0':
        break;
      case '\\':
        if (at_ + 1 == end_ || !is_newline(at_[1])) return true;
        at_ = skip_newline(at_ + 1, end_) - 1;
        break;
      default:
        return true;
    }
  }
  return false;
}

// One line of code: physical lines up to where brackets, strings and backslashes end.
void PythonReader::read_line() {
  if (!read_indent()) return;
  if (is_newline(*at_)) {
    at_ = skip_newline(at_, end_);
    return;
  }
  if (*at_ == '#') {
    at_ = find_newline(at_, end_);
    return;
  }
  if (options_.magics && !is_word(*at_)) {
    if (skip_prompt() && !read_indent()) return;
    if (read_escape()) return;
  }
  read_statement();
}

// `>>> ` and `... ` of an interactive session, `In [1]: ` and `   ...: ` of IPython's; both strip them too.
bool PythonReader::skip_prompt() {
  const auto rest = between(at_, end_).substr(0, 5);
  if (rest.starts_with(">>> ")) {
    prompts_ = true;
    at_ += 4;
    return true;
  }
  if (prompts_ && rest.starts_with("... ")) {
    at_ += 4;
    return true;
  }
  if (rest.starts_with("...: ")) {
    at_ += 5;
    return true;
  }
  return false;
}

// Lines that are IPython's and not Python's by their first character.
bool PythonReader::read_escape() {
  const char* stop = nullptr;
  switch (at_ == end_ ? '\0' : *at_) {
    case '%':
    case '!':
      blocks_.begin_line(indent_, {}, {}, out_.out.imports);
      stop = find_line_end(at_, end_);
      if (*at_ == '%' && between(at_, stop).starts_with("%%") &&
          read_late_cell_magic(source_.part(between(at_, end_)), out_)) {
        at_ = end_;
        return true;
      }
      read_escaped_line(source_.part(between(at_, stop)), out_);
      at_ = stop;
      return true;
    case '?':
    case ',':
    case ';':
    case '/':
      at_ = find_newline(at_, end_);
      return true;
    default:
      return false;
  }
}

// "def" of `async def`; `for` and `with` open plain blocks.
std::string_view PythonReader::word_behind_async() const {
  const auto word = word_at(skip_blanks(at_ + std::string_view("async").size(), end_), end_);
  return word == "def" ? word : std::string_view("for");
}

void PythonReader::read_statement() {
  if (at_ == end_) return;
  while ((*at_ & 0x80) != 0) {  // code pasted from a page
    const auto width = foreign_space(at_, end_);
    if (width == 0) break;
    broke_out_ = true;
    at_ += width;
    at_ = skip_blanks(at_, end_);
    if (at_ == end_) return;
  }
  auto word = word_at(at_, end_);
  if (options_.magics && word == "In" && between(at_, end_).starts_with("In [")) {
    const char* digits = at_ + 4;
    while (digits != end_ && is_digit(*digits)) ++digits;
    if (between(digits, end_).starts_with("]: ")) {
      at_ = digits + 3;
      word = word_at(at_, end_);
    }
  }
  header_ = begins_block(word);
  brackets_ = 0;
  if (header_) {
    blocks_.begin_line(indent_, word == "async" ? word_behind_async() : word, between(at_, end_), out_.out.imports);
  } else {
    blocks_.begin_line(indent_, {}, {}, out_.out.imports);
  }
  out_.in_function = in_function_ || blocks_.in_function();
  if (!word.empty() && !read_import(broke_out_)) {
    if (options_.magics && read_automagic(word)) {
      broke_out_ = false;
      return;
    }
    if (word == "exec") {
      const char* code = skip_blanks(at_ + word.size(), end_);
      if (code != end_ && code != at_ + word.size()) calls_.on_exec_statement(code);
    }
    at_ += word.size();
  }
  broke_out_ = false;
  scan_line();
}

// An import statement at `at_`, which moves behind it. `rescued` if something else already shows that Python would
// refuse it.
bool PythonReader::read_import(bool rescued) {
  switch (at_ == end_ ? '\0' : *at_) {
    case 'i':
    case 'f':
    case 'l':
    case 'c':
      break;
    default:
      return false;
  }
  const char* start = at_;
  auto word = word_at(start, end_);
  if (word == "lazy") {  // PEP 810
    start = skip_blanks(start + word.size(), end_);
    word = word_at(start, end_);
  }
  if (word != "import" && word != "from" && !(options_.cython && word == "cimport")) return false;
  if (!parse_import(start, end_, statement_)) return false;
  const auto line = source_.line_of(at_);
  const auto kind = blocks_.optional() ? ImportKind::kOptional : ImportKind::kImport;
  for (auto& name : statement_.names) {
    const bool local = name.module.front() == '.';
    out_.add(Import{.name = std::move(name.name),
                    .module = std::move(name.module),
                    .kind = kind,
                    .local = local,
                    .rescued = rescued || statement_.rescued,
                    .line = line});
  }
  at_ = statement_.end;
  return true;
}

// `pip install x`, `matplotlib inline`: IPython takes a magic's name for the magic where no variable has that name.
bool PythonReader::read_automagic(std::string_view word) {
  if (!may_be_automagic(word)) return false;
  const char* stop = find_line_end(at_, end_);
  if (!is_automagic(between(at_, stop))) return false;
  read_automagic_line(source_.part(between(at_, stop)), out_);
  at_ = stop;
  return true;
}

// To the end of the logical line.
void PythonReader::scan_line() {
  while (true) {
    while (at_ != end_ && special(*at_) == kPlain) ++at_;
    if (at_ == end_ || !scan_special()) return;
  }
}

// False at the line's end.
bool PythonReader::scan_special() {
  switch (special(*at_)) {
    case kNewline: {
      const char* next = skip_newline(at_, end_);
      if (brackets_ > 0 && breaks_out(next)) brackets_ = 0;
      at_ = next;
      return brackets_ > 0;
    }
    case kBackslash:
      ++at_;
      if (at_ != end_ && is_newline(*at_)) at_ = skip_newline(at_, end_);
      return true;
    case kHash:
      at_ = find_newline(at_, end_);
      return true;
    case kQuote:
      scan_string();
      return true;
    case kParenthesis:
      calls_.on_call(at_);
      ++brackets_;
      break;
    case kOpen:
      ++brackets_;
      break;
    case kClose:
      if (brackets_ > 0) --brackets_;
      break;
    case kSemicolon:
      if (brackets_ > 0) break;
      ++at_;
      begin_inline_statement();
      return true;
    case kColon:
      if (brackets_ > 0 || !header_) break;
      header_ = false;
      ++at_;
      begin_inline_statement();
      return true;
    case kEscape:
      if (brackets_ > 0 || !options_.magics || !assigned_here()) break;
      read_assigned_command();
      return true;
    case kPlain:
      break;
  }
  ++at_;
  return true;
}

void PythonReader::scan_string() {
  const auto literal = strings_.read(at_);
  calls_.on_string(at_, literal);
  at_ = literal.end;
}

// Behind `;`, or behind the colon of a block's header.
void PythonReader::begin_inline_statement() {
  at_ = skip_blanks(at_, end_);
  if (at_ == end_) return;
  if (*at_ == '!' && options_.magics) {
    const char* stop = find_line_end(at_, end_);
    read_escaped_line(source_.part(between(at_, stop)), out_);
    at_ = stop;
    return;
  }
  if (read_import(false)) return;
  if (starts_with_word(between(at_, end_).substr(0, 5), "exec")) {
    const char* code = skip_blanks(at_ + 4, end_);
    if (code != end_ && code != at_ + 4) calls_.on_exec_statement(code);
  }
}

// Whether the line that begins at `line` shows that the brackets it stands in were forgotten.
bool PythonReader::breaks_out(const char* line) {
  line = skip_blanks(line, end_);
  if (line == end_) return false;
  if (*line == '!') return options_.magics && line + 1 != end_ && line[1] != '=';
  if (*line < 'c' || *line > 'w') return false;
  const auto word = word_at(line, end_);
  if (word == "import" || word == "from") {
    broke_out_ = parse_import(line, end_, statement_) && !statement_.rescued;
    return broke_out_;
  }
  const char* behind = word.data() + word.size();
  return behind != end_ && never_in_brackets(word, *behind);
}

// `x = !ls`, `x = %sql select 1`
bool PythonReader::assigned_here() const {
  const char* before = at_;
  while (before != source_.begin() && is_blank(before[-1])) --before;
  if (before == source_.begin() || before[-1] != '=') return false;
  --before;
  constexpr std::string_view kOperators = "=!<>+-*/%&|^@:~";
  if (before == source_.begin() || kOperators.find(before[-1]) != std::string_view::npos) return false;
  return at_ + 1 != end_ && (*at_ == '!' ? at_[1] != '=' : is_word(at_[1]) && !is_digit(at_[1]));
}

void PythonReader::read_assigned_command() {
  const char* stop = find_line_end(at_, end_);
  read_escaped_line(source_.part(between(at_, stop)), out_);
  at_ = stop;
}

void read_python_source(const Source& source, Collector& out, const PythonOptions& options) {
  PythonReader(source, out, options).read();
}

}  // namespace varve::notebooks
