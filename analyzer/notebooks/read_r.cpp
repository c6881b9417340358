// R: what library() and its likes attach, what `pkg::name` takes from a package, what install.packages() installs.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/notebooks/internal/collector.h"

namespace varve::notebooks {

namespace {

constexpr std::size_t kMaxArguments = 4096;
constexpr int kMaxUnclosed = 16;  // raw strings; behind that many, r"( is what older versions read in it

enum class TokenKind : std::uint8_t { kEnd, kWord, kString, kSign };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // of a string: what is between its quotes
  const char* place = nullptr;
};

// Words may hold dots; a name in backquotes is a word.
class RLexer {
 public:
  explicit RLexer(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  Token next() {
    while (at_ != end_) {
      const char c = *at_;
      if (is_blank(c) || is_newline(c)) {
        ++at_;
      } else if (c == '#') {
        at_ = find_newline(at_, end_);
      } else if (c == '"' || c == '\'') {
        return read_string();
      } else if ((c == 'r' || c == 'R') && end_ - at_ > 2 && (at_[1] == '"' || at_[1] == '\'') &&
                 unclosed_ < kMaxUnclosed) {
        if (auto raw = read_raw_string()) return *raw;
        return read_word();
      } else if (is_word(c) || c == '.') {
        return read_word();
      } else if (c == '`') {
        return read_backquoted();
      } else {
        return read_sign();
      }
    }
    return {};
  }

 private:
  Token read_string() {
    const char* start = at_++;
    while (at_ != end_ && *at_ != *start) at_ += *at_ == '\\' && at_ + 1 != end_ ? 2 : 1;
    Token token{.kind = TokenKind::kString, .text = between(start + 1, at_), .place = start};
    if (at_ != end_) ++at_;
    return token;
  }

  // r"---( … )---"
  std::optional<Token> read_raw_string() {
    const char* at = at_ + 2;
    std::string closing;
    while (at != end_ && *at == '-' && closing.size() < 64) {
      closing += '-';
      ++at;
    }
    if (at == end_ || (*at != '(' && *at != '[' && *at != '{')) return std::nullopt;
    closing.insert(closing.begin(), *at == '(' ? ')' : *at == '[' ? ']' : '}');
    closing += at_[1];
    const auto rest = between(at + 1, end_);
    const auto stop = rest.find(closing);
    if (stop == std::string_view::npos) {
      ++unclosed_;
      return std::nullopt;
    }
    Token token{.kind = TokenKind::kString, .text = rest.substr(0, stop), .place = at_};
    at_ = rest.data() + stop + closing.size();
    return token;
  }

  Token read_word() {
    const char* start = at_;
    while (at_ != end_ && (is_word(*at_) || *at_ == '.')) ++at_;
    return {.kind = TokenKind::kWord, .text = between(start, at_), .place = start};
  }

  Token read_backquoted() {
    const char* start = ++at_;
    while (at_ != end_ && *at_ != '`' && !is_newline(*at_)) ++at_;
    Token token{.kind = TokenKind::kWord, .text = between(start, at_), .place = start};
    if (at_ != end_) ++at_;
    return token;
  }

  Token read_sign() {
    const char* start = at_;
    const auto rest = between(at_, end_);
    at_ += rest.starts_with(":::") ? 3 : rest.starts_with("::") ? 2 : 1;
    return {.kind = TokenKind::kSign, .text = between(start, at_), .place = start};
  }

  const char* at_;
  const char* end_;
  int unclosed_ = 0;  // raw strings without an end: each was searched for to the end of the text
};

enum class RCall : std::uint8_t {
  kNone,
  kAttach,
  kRequire,
  kNamespace,
  kAttachMany,
  kInstall,
  kInstallSource,
  kRemove
};

RCall known_call(std::string_view name) {
  if (name == "library") return RCall::kAttach;
  if (name == "require") return RCall::kRequire;
  if (name == "requireNamespace" || name == "loadNamespace" || name == "attachNamespace") return RCall::kNamespace;
  if (name == "p_load" || name == "shelf") return RCall::kAttachMany;
  if (name == "install.packages" || name == "pkg_install" || name == "install_cran" || name == "install_bioc")
    return RCall::kInstall;
  if (name == "remove.packages") return RCall::kRemove;
  if (name.starts_with("install_") && (name.ends_with("github") || name.ends_with("gitlab") || name.ends_with("url") ||
                                       name.ends_with("local") || name.ends_with("version") || name.ends_with("git"))) {
    return name.ends_with("version") ? RCall::kInstall : RCall::kInstallSource;
  }
  return RCall::kNone;
}

bool is_package_name(std::string_view name) {
  if (name.size() < 2 || name.size() > kMaxNameBytes || is_digit(name.front()) || name.front() == '.' ||
      name.back() == '.')
    return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (is_word(c) && (c & 0x80) == 0 && c != '_') || c == '.'; });
}

class RReader {
 public:
  RReader(const Source& source, Collector& out) : source_(source), out_(out), lexer_(source.text) {}

  void read() {
    Token before;
    for (Token token = lexer_.next(); token.kind != TokenKind::kEnd;) {
      Token after = lexer_.next();
      if (token.kind == TokenKind::kWord && after.kind == TokenKind::kSign) {
        if (after.text == "::" || after.text == ":::") {
          if (before.text != "::" && before.text != "$" && before.text != "@") add(token, ImportKind::kImport);
          qualifier_ = token.text;
        } else if (after.text == "(" && before.text != "$") {
          read_call(token);
          after = pending_;
          pending_ = {};
        }
      }
      if (token.kind == TokenKind::kSign && token.text.size() < 2) qualifier_ = {};
      if (token.text == "if") in_condition_ = true;
      if (token.text == "{" || token.text == "else") in_condition_ = false;
      before = token;
      token = after;
    }
  }

 private:
  // Behind the opening parenthesis of a call of `name`. Leaves in `pending_` the token at which reading goes on.
  void read_call(const Token& name) {
    auto call = known_call(name.text);
    if (name.text == "install" && (qualifier_ == "BiocManager" || qualifier_ == "renv" || qualifier_ == "pak"))
      call = RCall::kInstall;
    if (name.text == "use" && qualifier_ == "box") call = RCall::kAttachMany;
    pending_ = lexer_.next();
    if (call == RCall::kNone) return;
    const bool many = call != RCall::kAttach && call != RCall::kRequire && call != RCall::kNamespace;
    read_arguments(call, name, many);
  }

  // The package of library() is its first argument or the one called `package`; the others' are all strings that stand
  // in the arguments without a name, or with that of packages.
  void read_arguments(RCall call, const Token& name, bool many) {
    int depth = 1;
    std::string_view keyword;
    bool first = true;
    Token chosen;
    bool by_value = false;
    for (std::size_t count = 0; count < kMaxArguments && pending_.kind != TokenKind::kEnd; ++count) {
      const Token token = pending_;
      pending_ = lexer_.next();
      if (token.kind == TokenKind::kSign) {
        if (token.text == "(") ++depth;
        if (token.text == ")" && --depth == 0) break;
        if (token.text == "," && depth == 1) {
          keyword = {};
          first = false;
        }
        continue;
      }
      if (token.kind == TokenKind::kWord && pending_.kind == TokenKind::kSign && pending_.text == "=") {
        if (depth == 1) keyword = token.text;
        pending_ = lexer_.next();
        continue;
      }
      if (token.kind == TokenKind::kWord && keyword == "character.only")
        by_value = token.text == "TRUE" || token.text == "T";
      if (many) {
        read_item(call, token, keyword, depth);
      } else if (chosen.kind == TokenKind::kEnd && (keyword == "package" || (keyword.empty() && first))) {
        chosen = token;
        if (pending_.text == "(" || pending_.text == "[" || pending_.text == "$")
          by_value = true;  // library(paste0("a", "b"))
      }
    }
    if (!many) add_attached(call, name, chosen, by_value);
  }

  void add_attached(RCall call, const Token& name, const Token& package, bool by_value) {
    if (package.kind == TokenKind::kEnd || package.text == "help") return;
    const bool word = package.kind == TokenKind::kWord;
    if (word && (by_value || call == RCall::kNamespace)) {
      out_.add(Import{.name = {},
                      .module = {},
                      .kind = ImportKind::kDynamic,
                      .language = SourceLanguage::kR,
                      .unknown_name = true,
                      .line = source_.line_of(name.place)});
      return;
    }
    const bool optional = name.text == "requireNamespace" || (call == RCall::kRequire && in_condition_);
    add(package, optional ? ImportKind::kOptional : ImportKind::kImport);
  }

  void read_item(RCall call, const Token& token, std::string_view keyword, int depth) {
    const bool named = !keyword.empty() && keyword != "pkgs" && keyword != "pkg" && keyword != "packages" &&
                       keyword != "repo" && keyword != "package";
    if (named) return;
    if (call == RCall::kAttachMany) {
      if (depth == 1 || token.kind == TokenKind::kString) add(token, ImportKind::kImport);
      return;
    }
    if (token.kind != TokenKind::kString || token.text.size() > kMaxNameBytes) return;
    const bool package = call != RCall::kInstallSource && is_package_name(token.text);
    out_.add(Install{.tool = "r",
                     .package = package ? std::string(token.text) : std::string(),
                     .argument = std::string(token.text),
                     .remove = call == RCall::kRemove,
                     .line = source_.line_of(token.place)});
  }

  void add(const Token& package, ImportKind kind) {
    if (!is_package_name(package.text)) return;
    out_.add(Import{.name = std::string(package.text),
                    .module = std::string(package.text),
                    .kind = kind,
                    .language = SourceLanguage::kR,
                    .line = source_.line_of(package.place)});
  }

  const Source& source_;
  Collector& out_;
  RLexer lexer_;
  Token pending_;
  std::string_view qualifier_;
  bool in_condition_ = false;  // between `if` and what it decides on
};

}  // namespace

void read_r_source(const Source& source, Collector& out) { RReader(source, out).read(); }

}  // namespace varve::notebooks
