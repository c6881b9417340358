#include "analyzer/notebooks/internal/call_reader.h"

#include <algorithm>
#include <array>

#include "analyzer/notebooks/internal/command_reader.h"
#include "analyzer/notebooks/internal/magics.h"

namespace varve::notebooks {

namespace {

constexpr std::size_t kMaxItems = 4096;
constexpr std::size_t kMaxEngineArguments = 64;  // looked at for engine="…"
constexpr std::size_t kMaxParts = 64;            // of one string put together

enum class CallKind : std::uint8_t {
  kNone,
  kImport,
  kProbe,
  kFile,
  kModule,
  kLocate,
  kRequire,
  kExec,
  kCommand,
  kMagic,
  kPipMain,
  kLibrary
};

struct KnownCall {
  std::string_view name;
  CallKind kind;
};

constexpr std::array<KnownCall, 39> kKnownCalls = {{
    {"__import__", CallKind::kImport},
    {"import_module", CallKind::kImport},
    {"importorskip", CallKind::kImport},
    {"find_spec", CallKind::kProbe},
    {"find_loader", CallKind::kProbe},
    {"resolve_name", CallKind::kLocate},
    {"locate", CallKind::kLocate},
    {"spec_from_file_location", CallKind::kFile},
    {"load_source", CallKind::kFile},
    {"run_module", CallKind::kModule},
    {"require", CallKind::kRequire},
    {"exec", CallKind::kExec},
    {"eval", CallKind::kExec},
    {"system", CallKind::kCommand},
    {"popen", CallKind::kCommand},
    {"run", CallKind::kCommand},
    {"call", CallKind::kCommand},
    {"check_call", CallKind::kCommand},
    {"check_output", CallKind::kCommand},
    {"Popen", CallKind::kCommand},
    {"getoutput", CallKind::kCommand},
    {"getstatusoutput", CallKind::kCommand},
    {"create_subprocess_shell", CallKind::kCommand},
    {"run_line_magic", CallKind::kMagic},
    {"run_cell_magic", CallKind::kMagic},
    {"magic", CallKind::kMagic},
    {"main", CallKind::kPipMain},
    {"pipmain", CallKind::kPipMain},
    {"_main", CallKind::kPipMain},
    {"CDLL", CallKind::kLibrary},
    {"PyDLL", CallKind::kLibrary},
    {"LoadLibrary", CallKind::kLibrary},
    {"dlopen", CallKind::kLibrary},
    // How libraries call what imports where it is needed: pandas, networkx, pyomo, lightning and their like.
    {"import_optional_dependency", CallKind::kProbe},
    {"_lazy_import", CallKind::kProbe},
    {"lazy_import", CallKind::kProbe},
    {"try_import", CallKind::kProbe},
    {"optional_import", CallKind::kProbe},
    {"attempt_import", CallKind::kProbe},
}};

// Most calls are none of these, which their first and last letters tell.
CallKind known_call(std::string_view name) {
  if (name.size() < 3 || name.size() > 26) return CallKind::kNone;
  switch (name.back()) {
    case '_':
    case 'e':
    case 'p':
    case 'c':
    case 'r':
    case 'n':
    case 'm':
    case 'l':
    case 't':
    case 'k':
    case 'L':
    case 'y':
      break;
    default:
      return CallKind::kNone;
  }
  for (const auto& known : kKnownCalls) {
    if (known.name == name) return known.kind;
  }
  return CallKind::kNone;
}

bool is_dotted_name(std::string_view name) {
  bool begins = true;
  for (const char c : name) {
    if (c == '.') {
      if (begins) return false;
      begins = true;
    } else if (!is_word(c) || (begins && is_digit(c))) {
      return false;
    } else {
      begins = false;
    }
  }
  return !begins;
}

// The opening quote if a literal begins at `at`.
const char* literal_quote(const char* at, const char* end) {
  for (int prefix = 0; prefix < 3 && at != end; ++prefix, ++at) {
    if (*at == '"' || *at == '\'') return at;
    if (std::string_view("rRbBuUfFtT").find(*at) == std::string_view::npos) return nullptr;
  }
  return nullptr;
}

// "a.b.C" or "a.b:c": what is certainly a module ends before the last part.
void add_target(std::uint32_t line, std::string_view target, Collector& out) {
  std::string name(target);
  std::replace(name.begin(), name.end(), ':', '.');
  if (!is_dotted_name(name)) return;
  const auto dot = name.rfind('.');
  auto module = dot == std::string::npos ? name : name.substr(0, dot);
  out.add(Import{.name = std::move(name), .module = std::move(module), .kind = ImportKind::kDynamic, .line = line});
}

bool begins_with_word(const Source& source, const char* at, std::string_view word) {
  return starts_with_word(between(at, source.end()).substr(0, word.size() + 1), word);
}

}  // namespace

struct CallReader::Argument {
  bool constant = false;      // literals, and nothing is done with them: `text` is their value
  bool text_known = false;    // at least partly: `text` holds literals, and "{expression}" between them
  bool code_in_text = false;  // an f-string with expressions
  std::string text;
  const char* end = nullptr;
};

struct CallReader::Call {
  std::string_view qualifier;  // "os.path" of `os.path.join(`; "." if something else than a name is before the dot
  std::string_view name;
  CallKind kind;
  const char* place;      // of the name
  const char* arguments;  // behind the parenthesis
};

// In configurations: lines of `_target_: a.b.C`.
void read_targets(const Source& source, Collector& out) {
  constexpr std::string_view kKey = "_target_:";
  for (std::size_t at = 0; (at = source.text.find(kKey, at)) != std::string_view::npos;) {
    const char* place = source.begin() + at;
    at += kKey.size();
    auto value = trimmed(between(source.begin() + at, find_newline(source.begin() + at, source.end())));
    value = trimmed(value.substr(0, value.find('#')));
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'')) value = value.substr(1, value.size() - 2);
    add_target(source.line_of(place), value, out);
  }
}

void CallReader::on_call(const char* parenthesis) {
  const char* start = parenthesis;
  while (start != source_.begin() && is_word(start[-1])) --start;
  const auto name = between(start, parenthesis);
  const auto kind = known_call(name);
  if (budget_ == 0) return;
  Call call{.qualifier = {}, .name = name, .kind = kind, .place = start, .arguments = parenthesis + 1};
  if (start != source_.begin() && start[-1] == '.') {
    call.qualifier = dotted_word_before(source_.begin(), start - 1);
    if (call.qualifier.empty()) call.qualifier = ".";
  } else {
    const char* before = start;
    while (before != source_.begin() && is_blank(before[-1])) --before;
    const auto word = dotted_word_before(source_.begin(), before);
    if (word == "def" || word == "class") return;
  }
  read_backend_call(call);
  read_call(call);
}

// pd.read_excel(path, engine="odf"), df.style.format(…)
void CallReader::read_backend_call(const Call& call) {
  const auto& rows = backend_rows(call.name, call.qualifier);
  if (rows.empty()) return;
  std::string engine;
  const char* at = skip_space(call.arguments);
  for (std::size_t item = 0; item < kMaxEngineArguments && at != source_.end() && *at != ')'; ++item) {
    const char* before = at;
    if (begins_with_word(source_, at, "engine")) {
      const char* equals = skip_space(at + std::string_view("engine").size());
      if (equals != source_.end() && *equals == '=') {
        const auto value = read_argument(skip_space(equals + 1));
        if (value.constant) engine = value.text;
        break;
      }
    }
    at = skip_space(skip_expression(at));
    if (at != source_.end() && (*at == ',' || *at == '+')) at = skip_space(at + 1);
    if (at == before) break;
  }
  for (const auto row : rows)
    out_.add(
        BackendHit{.row = row, .call = std::string(call.name), .engine = engine, .line = source_.line_of(call.place)});
}

void CallReader::read_call(const Call& call) {
  const bool bare = call.qualifier.empty();
  switch (call.kind) {
    case CallKind::kImport:
      read_import_call(call, false);
      break;
    case CallKind::kProbe:
      read_import_call(call, true);
      break;
    case CallKind::kModule:
      read_import_call(call, true);
      break;
    case CallKind::kFile: {
      const auto argument = read_argument(skip_space(call.arguments));
      if (argument.constant && is_dotted_name(argument.text)) {
        add_dynamic(call.place, argument.text, true);
      } else {
        add_unknown(call.place);
      }
      break;
    }
    case CallKind::kLocate:
      if (call.qualifier == "pydoc" || call.qualifier == "pkgutil" || call.qualifier == "hydra.utils") {
        const auto argument = read_argument(skip_space(call.arguments));
        if (argument.constant) add_target(source_.line_of(call.place), argument.text, out_);
      }
      break;
    case CallKind::kRequire:
      if (call.qualifier == "pkg_resources") read_requirement(call);
      break;
    case CallKind::kExec:
      if (bare) read_exec(read_argument(skip_space(call.arguments)), call.place);
      break;
    case CallKind::kCommand:
      read_command_call(call);
      break;
    case CallKind::kMagic:
      read_magic_call(call);
      break;
    case CallKind::kPipMain:
      if (call.name == "pipmain" || call.qualifier.starts_with("pip")) {
        const char* list = skip_space(call.arguments);
        if (list == source_.end() || *list != '[') break;
        auto words = read_list(list + 1);
        words.insert(words.begin(), "pip");
        read_command_words(words, source_.line_of(call.place), out_, {.installs_only = true});
      }
      break;
    case CallKind::kLibrary: {
      auto argument = read_argument(skip_space(call.arguments));
      if (argument.constant) out_.add_library(std::move(argument.text));
      break;
    }
    case CallKind::kNone:
      break;
  }
}

// `probe`: find_spec("x") asks for a module, and a name it does not tell is nothing that was imported.
void CallReader::read_import_call(const Call& call, bool probe) {
  const char* start = skip_space(call.arguments);
  if (start == source_.end() || *start == ')') return;
  const auto argument = read_argument(start);
  if (!argument.constant) {
    if (!probe) add_unknown(call.place);
    return;
  }
  std::string_view name = argument.text;
  std::size_t dots = 0;
  while (dots < name.size() && name[dots] == '.') ++dots;
  if (!is_dotted_name(name.substr(dots)) || name.size() > kMaxNameBytes) {
    if (!probe) add_unknown(call.place);
    return;
  }
  if (dots == 0) {
    add_dynamic(call.place, name, false);
    return;
  }
  std::string package;
  keyword_string(argument.end, "package", package);
  if (dots == 1 && is_dotted_name(package)) {
    add_dynamic(call.place, package + argument.text, false);
  } else {
    add_dynamic(call.place, name, true);
  }
}

// The second argument, by place or by name, if it is a literal.
std::string_view CallReader::keyword_string(const char* at, std::string_view name, std::string& value) {
  at = skip_space(at);
  if (at == source_.end() || *at != ',') return {};
  at = skip_space(at + 1);
  if (word_at(at, source_.end()) == name) {
    at = skip_space(at + name.size());
    if (at == source_.end() || *at != '=') return {};
    at = skip_space(at + 1);
  }
  const auto argument = read_argument(at);
  if (argument.constant) value = argument.text;
  return value;
}

void CallReader::add_dynamic(const char* place, std::string_view name, bool local) {
  out_.add(Import{.name = std::string(name),
                  .module = std::string(name),
                  .kind = ImportKind::kDynamic,
                  .local = local,
                  .line = source_.line_of(place)});
}

void CallReader::add_unknown(const char* place) {
  out_.add(Import{
      .name = {}, .module = {}, .kind = ImportKind::kDynamic, .unknown_name = true, .line = source_.line_of(place)});
}

void CallReader::read_requirement(const Call& call) {
  const auto argument = read_argument(skip_space(call.arguments));
  if (!argument.constant) return;
  const auto name = requirement_name(argument.text);
  if (name.empty()) return;
  out_.add(Import{.name = name, .module = {}, .kind = ImportKind::kDynamic, .line = source_.line_of(call.place)});
}

void CallReader::read_exec(const Argument& code, const char* place) {
  if (!code.text_known) return;
  const auto line = source_.line_of(place);
  if (code.code_in_text || !code.constant) {
    const auto text = trimmed(code.text);
    if (starts_with_word(text, "import") || starts_with_word(text, "from")) add_unknown(place);
    return;
  }
  read_nested(out_, ImportKind::kDynamic,
              [&] { read_python_source({.text = code.text, .line = line}, out_, {.magics = false}); });
}

void CallReader::on_exec_statement(const char* code) {
  const char* quote = literal_quote(code, source_.end());
  if (!quote) return;
  Argument argument;
  argument.constant = argument.text_known = true;
  const auto value = literal_value(strings_.read(quote));
  if (!value) return;
  argument.text = *value;
  read_exec(argument, code);
}

void CallReader::on_string(const char* quote, const StringLiteral& literal) {
  if (literal.body.starts_with('/') && literal.body.find(".so") != std::string_view::npos) {
    if (const auto path = literal_value(literal)) out_.add_library(*path);
  }
  if (literal.body == "_target_") {
    const char* at = skip_space(literal.end);
    if (at != source_.end() && *at == ']') at = skip_space(at + 1);
    if (at == source_.end() || (*at != ':' && *at != '=')) return;
    const auto value = read_argument(skip_space(at + 1));
    if (value.constant) add_target(source_.line_of(quote), value.text, out_);
    return;
  }
  if (literal.triple && literal.body.find("_target_:") != std::string_view::npos) {
    read_targets(source_.part(literal.body), out_);
    return;
  }
  const char* before = quote;
  while (before != source_.begin() && is_blank(before[-1])) --before;
  if (before == source_.begin() || before[-1] != '=') return;
  --before;
  while (before != source_.begin() && is_blank(before[-1])) --before;
  auto word = dotted_word_before(source_.begin(), before);
  if (word == "str") {  // _target_: str = "…"
    before = word.data();
    while (before != source_.begin() && (is_blank(before[-1]) || before[-1] == ':')) --before;
    word = dotted_word_before(source_.begin(), before);
  }
  if (!word.ends_with("_target_")) return;
  if (const auto value = literal_value(literal)) add_target(source_.line_of(quote), *value, out_);
}

void CallReader::read_command_call(const Call& call) {
  static constexpr std::array<std::string_view, 9> kModules = {
      "os", "subprocess", "sp", "asyncio", "commands", "popen2", "subprocess32", "get_ipython", "asyncio.subprocess"};
  const bool known = std::find(kModules.begin(), kModules.end(), call.qualifier) != kModules.end() ||
                     (call.qualifier == "." && call.name != "run" && call.name != "call");
  const CommandOptions options{.installs_only = !known};
  const char* start = skip_space(call.arguments);
  if (begins_with_word(source_, start, "command") || begins_with_word(source_, start, "args") ||
      begins_with_word(source_, start, "cmd")) {
    const auto word = word_at(start, source_.end());
    const char* equals = skip_space(start + word.size());
    if (equals != source_.end() && *equals == '=') start = skip_space(equals + 1);
  }
  if (between(start, source_.end()).starts_with("shlex.split(")) start = skip_space(start + 12);
  if (start == source_.end()) return;
  const auto line = source_.line_of(call.place);
  if (*start == '[' || *start == '(') {
    const auto words = read_list(start + 1);
    read_command_words(words, line, out_, options);
    return;
  }
  const auto argument = read_argument(start);
  if (!argument.text_known) return;
  read_nested(out_, std::nullopt, [&] { read_shell_commands({.text = argument.text, .line = line}, out_, options); });
}

// get_ipython().run_line_magic("pip", "install x"), .run_cell_magic("bash", "", "…"), .magic("pylab inline")
void CallReader::read_magic_call(const Call& call) {
  if (call.qualifier.empty()) return;
  const auto name = read_argument(skip_space(call.arguments));
  if (!name.text_known || name.text.size() > kMaxNameBytes) return;
  const auto line = source_.line_of(call.place);
  if (call.name == "magic") {
    const auto text = "%" + std::string(name.text.starts_with('%') ? name.text.substr(1) : name.text);
    read_nested(out_, std::nullopt, [&] { read_escaped_line({.text = text, .line = line}, out_); });
    return;
  }
  std::string arguments;
  const char* at = skip_space(name.end);
  if (at == source_.end() || *at != ',') return;
  const auto second = read_argument(skip_space(at + 1));
  if (second.text_known) arguments = second.text;
  if (call.name == "run_line_magic") {
    const auto text = "%" + name.text + " " + arguments;
    read_nested(out_, std::nullopt, [&] { read_escaped_line({.text = text, .line = line}, out_); });
    return;
  }
  if (!second.end) return;
  at = skip_space(second.end);
  if (at == source_.end() || *at != ',') return;
  const auto body = read_argument(skip_space(at + 1));
  if (!body.text_known) return;
  const auto text = "%%" + name.text + " " + arguments + "\n" + body.text;
  read_nested(out_, std::nullopt, [&] { read_cell_magic({.text = text, .line = line}, out_); });
}

// A literal, or literals side by side, or put together with `+`; `at` stands where the argument begins.
CallReader::Argument CallReader::read_argument(const char* at) {
  Argument argument;
  argument.constant = true;
  const char* start = at;
  for (std::size_t part = 0; part < kMaxParts; ++part) {
    if (const char* quote = literal_quote(at, source_.end())) {
      const auto literal = strings_.read(quote);
      const auto value = literal_value(literal);
      argument.code_in_text |= !value;
      argument.constant &= value.has_value() && literal.terminated;
      argument.text_known = true;
      argument.text += value ? *value : literal_text(literal);
      at = literal.end;
    } else if (argument.text_known) {  // behind a plus
      const char* stop = skip_expression(at);
      argument.constant = false;
      argument.text += "{" + std::string(trimmed(between(at, stop).substr(0, kMaxNameBytes))) + "}";
      at = stop;
    } else {
      break;
    }
    at = skip_space(at);
    if (at != source_.end() && *at == '+') {
      at = skip_space(at + 1);
    } else if (!literal_quote(at, source_.end())) {
      break;
    }
  }
  argument.constant &= argument.text_known;
  if (at != source_.end() && (*at == '.' || *at == '%' || *at == '[' || is_word(*at))) argument.constant = false;
  argument.end = at;
  budget_ -= std::min(budget_, static_cast<std::size_t>(at - start));
  return argument;
}

// The strings of a list; other expressions stay in braces, but for the interpreter's own name.
std::vector<std::string> CallReader::read_list(const char* at) {
  std::vector<std::string> words;
  const char* start = at;
  at = skip_space(at);
  while (at != source_.end() && *at != ']' && *at != ')' && words.size() < kMaxItems) {
    const char* before = at;
    auto word = read_words_item(at);
    if (!word.empty()) words.push_back(std::move(word));
    at = skip_space(at);
    if (at != source_.end() && *at == ',') at = skip_space(at + 1);
    if (at == before) break;
  }
  budget_ -= std::min(budget_, static_cast<std::size_t>(at - start));
  return words;
}

std::string CallReader::read_words_item(const char*& at) {
  auto argument = read_argument(at);
  if (argument.text_known) {
    at = skip_expression(argument.end);
    return std::move(argument.text);
  }
  const char* stop = skip_expression(at);
  const auto expression = trimmed(between(at, stop));
  at = stop;
  if (expression.empty() || expression.size() > kMaxNameBytes) return {};
  if (expression == "sys.executable") return "python";
  return "{" + std::string(expression) + "}";
}

// Blanks, newlines, comments: inside brackets none of them ends anything.
const char* CallReader::skip_space(const char* at) const {
  while (at != source_.end()) {
    if (is_blank(*at) || is_newline(*at)) {
      ++at;
    } else if (*at == '#') {
      at = find_newline(at, source_.end());
    } else if (*at == '\\' && at + 1 != source_.end() && is_newline(at[1])) {
      at += 2;
    } else {
      break;
    }
  }
  return at;
}

// To the comma, the plus or the bracket that ends an expression.
const char* CallReader::skip_expression(const char* at) {
  const char* start = at;
  int brackets = 0;
  while (at != source_.end() && static_cast<std::size_t>(at - start) < budget_) {
    const char c = *at;
    if (c == '"' || c == '\'') {
      at = strings_.read(at).end;
      continue;
    }
    if (c == '(' || c == '[' || c == '{') {
      ++brackets;
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets == 0) break;
      --brackets;
    } else if (brackets == 0 && (c == ',' || c == '+' || is_newline(c))) {
      break;
    }
    ++at;
  }
  budget_ -= std::min(budget_, static_cast<std::size_t>(at - start));
  return at;
}

}  // namespace varve::notebooks
