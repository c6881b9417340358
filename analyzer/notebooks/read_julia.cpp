// Julia: `using` and `import` at the beginnings of statements, and what Pkg adds.
#include <algorithm>
#include <cstring>
#include <string>

#include "analyzer/notebooks/internal/collector.h"
#include "analyzer/notebooks/internal/shell_words.h"

namespace varve::notebooks {

namespace {

constexpr std::size_t kMaxNames = 10'000;

class JuliaReader {
 public:
  JuliaReader(const Source& source, Collector& out)
      : source_(source), out_(out), at_(source.begin()), end_(source.end()) {}

  void read() {
    bool begins = true;  // of a statement
    while (at_ != end_) {
      const char c = *at_;
      if (is_newline(c) || c == ';') {
        begins = true;
        ++at_;
      } else if (is_blank(c)) {
        ++at_;
      } else if (c == '#') {
        skip_comment();
      } else if (begins && c == ']') {
        read_package_line();
      } else if (c == '"' || c == '`') {
        skip_string(c);
        begins = false;
      } else if (c == '\'') {
        skip_character();
        begins = false;
      } else if (is_word(c) || c == '@') {
        begins = read_word(begins);
      } else {
        begins = false;
        ++at_;
      }
    }
  }

 private:
  // Whether a statement may follow.
  bool read_word(bool begins) {
    const char* start = at_++;
    while (at_ != end_ && (is_word(*at_) || *at_ == '!')) ++at_;
    const auto word = between(start, at_);
    if (begins && (word == "using" || word == "import") && at_ != end_ && (is_blank(*at_) || *at_ == '\\')) {
      read_using(start);
      return false;
    }
    if (word == "Pkg" && at_ != end_ && *at_ == '.') {
      read_pkg_call();
      return false;
    }
    if (word == "pkg" && at_ != end_ && *at_ == '"') {
      const auto body = read_literal();
      read_package_command(body);
      return false;
    }
    // Blocks and macros: `begin using A`, `@everywhere using A`, `if x using A end`, `try using A`.
    return word.front() == '@' || word == "begin" || word == "try" || word == "else" || word == "do" || word == "quote";
  }

  // using A, B.C: x, y · import A.B as C · using .Local
  void read_using(const char* start) {
    const auto line = source_.line_of(start);
    for (std::size_t count = 0; count < kMaxNames; ++count) {
      skip_space(true);
      const auto name = read_dotted();
      if (name.empty()) return;
      skip_space(false);
      if (at_ != end_ && *at_ == ':' && !(at_ + 1 != end_ && at_[1] == ':')) {
        ++at_;
        add(name, line);
        skip_members();
        return;
      }
      add(name, line);
      skip_alias();
      if (at_ == end_ || *at_ != ',') return;
      ++at_;
    }
  }

  // "as other", if it is there, and the space behind it.
  void skip_alias() {
    if (!starts_with_word(between(at_, end_).substr(0, 3), "as")) return;
    at_ += 2;
    skip_space(false);
    at_ += word_at(at_, end_).size();
    skip_space(false);
  }

  void skip_members() {
    while (at_ != end_) {
      skip_space(true);
      while (at_ != end_ && !is_blank(*at_) && !is_newline(*at_) && *at_ != ',' && *at_ != ';' && *at_ != '#') ++at_;
      skip_space(false);
      skip_alias();
      if (at_ == end_ || *at_ != ',') return;
      ++at_;
    }
  }

  std::string read_dotted() {
    std::string name;
    while (at_ != end_ && *at_ == '.' && name.size() < kMaxNameBytes) {
      name += '.';
      ++at_;
    }
    while (true) {
      if (at_ != end_ && *at_ == '@') ++at_;
      const auto word = word_at(at_, end_);
      if (word.empty() || is_digit(word.front()) || name.size() + word.size() > kMaxNameBytes) return {};
      name += word;
      at_ += word.size();
      if (at_ != end_ && *at_ == '!') ++at_;
      if (at_ + 1 >= end_ || *at_ != '.' || !(is_word(at_[1]) || at_[1] == '@')) return name;
      name += '.';
      ++at_;
    }
  }

  void add(const std::string& name, std::uint32_t line) {
    out_.add(Import{.name = name,
                    .module = name,
                    .kind = ImportKind::kImport,
                    .language = SourceLanguage::kJulia,
                    .local = name.front() == '.',
                    .line = line});
  }

  // Pkg.add("A"), Pkg.add(["A", "B"]), Pkg.add(name="A", version="1"), Pkg.add(url="…"), Pkg.rm("A")
  void read_pkg_call() {
    ++at_;
    const auto verb = word_at(at_, end_);
    at_ += verb.size();
    const bool adds = verb == "add" || verb == "develop" || verb == "update";
    if ((!adds && verb != "rm") || at_ == end_ || *at_ != '(') return;
    int depth = 0;
    std::string_view keyword;
    while (at_ != end_) {
      const char c = *at_;
      if (c == '(' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == ')' || c == ']') {
        ++at_;
        if (--depth == 0) return;
      } else if (c == '"') {
        const char* place = at_;
        add_install(read_literal(), keyword, verb, source_.line_of(place));
      } else if (is_word(c)) {
        keyword = word_at(at_, end_);
        at_ += std::max<std::size_t>(keyword.size(), 1);
        const char* equals = skip_blanks(at_, end_);
        if (equals == end_ || *equals != '=') keyword = {};
      } else if (c == '#') {
        skip_comment();
      } else {
        if (c == ',') keyword = {};
        ++at_;
      }
    }
  }

  void add_install(std::string_view argument, std::string_view keyword, std::string_view verb, std::uint32_t line) {
    if (argument.empty() || argument.size() > kMaxNameBytes) return;
    if (keyword == "version" || keyword == "uuid" || keyword == "rev" || keyword == "subdir" || keyword == "mode")
      return;
    auto name = argument.substr(0, argument.find_first_of("@#="));
    const bool plain =
        keyword != "url" && keyword != "path" && !name.empty() && std::all_of(name.begin(), name.end(), is_word);
    out_.add(Install{.tool = "julia",
                     .package = plain ? std::string(name) : std::string(),
                     .argument = std::string(argument),
                     .upgrade = verb == "update" || verb == "up",
                     .remove = verb == "rm" || verb == "remove",
                     .line = line});
  }

  // `] add A B` at the prompt
  void read_package_line() {
    ++at_;
    const char* stop = find_newline(at_, end_);
    read_package_command(between(at_, stop));
    at_ = stop;
  }

  void read_package_command(std::string_view text) {
    ShellSplitter splitter(text);
    for (ShellCommand command; splitter.next(command);) {
      const auto& words = command.words;
      const auto line = source_.line_of(command.place);
      const auto& verb = words.front();
      if (verb != "add" && verb != "rm" && verb != "dev" && verb != "develop" && verb != "up" && verb != "update" &&
          verb != "remove")
        continue;
      for (std::size_t i = 1; i < words.size(); ++i) {
        std::string_view word = words[i];
        while (word.ends_with(',')) word.remove_suffix(1);
        if (!word.starts_with('-')) add_install(word, {}, verb, line);
      }
    }
  }

  void skip_comment() {
    if (at_ + 1 == end_ || at_[1] != '=') {
      at_ = find_newline(at_, end_);
      return;
    }
    int depth = 0;
    while (at_ != end_) {
      const auto rest = between(at_, end_);
      if (rest.starts_with("#=")) {
        ++depth;
        at_ += 2;
      } else if (rest.starts_with("=#")) {
        at_ += 2;
        if (--depth == 0) return;
      } else {
        ++at_;
      }
    }
  }

  void skip_string(char quote) {
    const std::string_view triple = quote == '"' ? "\"\"\"" : "```";
    const bool is_triple = between(at_, end_).starts_with(triple);
    at_ += is_triple ? 3 : 1;
    while (at_ != end_) {
      if (*at_ == '\\' && at_ + 1 != end_) {
        at_ += 2;
      } else if (is_triple ? between(at_, end_).starts_with(triple) : *at_ == quote) {
        at_ += is_triple ? 3 : 1;
        return;
      } else {
        ++at_;
      }
    }
  }

  std::string_view read_literal() {
    const char* start = at_;
    skip_string('"');
    const std::ptrdiff_t width = between(start, at_).starts_with("\"\"\"") ? 3 : 1;
    if (at_ - start < 2 * width) return {};
    return between(start + width, at_ - width);
  }

  // 'x' and '\n' are characters; any other apostrophe transposes a matrix.
  void skip_character() {
    const char* start = at_++;
    if (start != source_.begin() &&
        (is_word(start[-1]) || start[-1] == ')' || start[-1] == ']' || start[-1] == '\'' || start[-1] == '.'))
      return;
    const char* at = at_;
    for (int length = 0; at != end_ && length < 12 && !is_newline(*at); ++length, ++at) {
      if (*at == '\\' && at + 1 != end_) {
        ++at;
      } else if (*at == '\'') {
        at_ = at + 1;
        return;
      }
    }
  }

  // `over_lines`: behind a comma or a colon, where a list goes on.
  void skip_space(bool over_lines) {
    while (at_ != end_) {
      if (is_blank(*at_) || (over_lines && is_newline(*at_))) {
        ++at_;
      } else if (over_lines && *at_ == '#') {
        skip_comment();
      } else {
        return;
      }
    }
  }

  const Source& source_;
  Collector& out_;
  const char* at_;
  const char* end_;
};

}  // namespace

void read_julia_source(const Source& source, Collector& out) { JuliaReader(source, out).read(); }

}  // namespace varve::notebooks
