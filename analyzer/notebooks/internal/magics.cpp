#include "analyzer/notebooks/internal/magics.h"

#include <algorithm>
#include <array>

#include "analyzer/notebooks/internal/call_reader.h"
#include "analyzer/notebooks/internal/command_reader.h"
#include "analyzer/notebooks/internal/looks_like_python.h"
#include "analyzer/notebooks/internal/magic_table.h"
#include "core/base/text/image_path.h"

namespace varve::notebooks {

namespace {

// A magic's name and what follows it on its line.
struct MagicLine {
  std::string_view name;
  std::string_view arguments;  // a view into the text
};

// `text` begins behind the percent signs.
MagicLine split_magic(std::string_view text) {
  const char* at = text.data();
  const char* end = at + text.size();
  if (text.starts_with('!')) return {.name = text.substr(0, 1), .arguments = text.substr(1)};
  at = skip_blanks(at, end);
  const char* stop = at;
  while (stop != end && (is_word(*stop) || *stop == '.')) ++stop;
  return {.name = between(at, stop), .arguments = trimmed(between(stop, end))};
}

void add_module(std::string_view module, std::uint32_t line, Collector& out) {
  out.add(Import{.name = std::string(module), .module = std::string(module), .kind = ImportKind::kMagic, .line = line});
}

void add_modules_of(const MagicFacts* facts, std::uint32_t line, Collector& out) {
  if (!facts) return;
  for (const auto module : facts->modules) {
    if (!module.empty()) add_module(module, line, out);
  }
}

bool is_dotted(std::string_view name) {
  return !name.empty() && is_word(name.front()) && !is_digit(name.front()) && is_word(name.back()) &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_word(c) || c == '.'; });
}

std::string_view next_word(std::string_view& text) {
  text = trimmed(text);
  const auto stop = std::find_if(text.begin(), text.end(), [](char c) { return is_blank(c) || is_newline(c); });
  const auto word = text.substr(0, static_cast<std::size_t>(stop - text.begin()));
  text.remove_prefix(word.size());
  return word;
}

// What stands behind the options: `-n 10 -r3 x = 1` leaves `x = 1`.
std::string_view skip_options(std::string_view arguments, std::string_view value_options) {
  while (true) {
    auto rest = arguments;
    const auto word = next_word(rest);
    if (word.size() < 2 || word.front() != '-') return trimmed(arguments);
    const bool takes_value = value_options.find(word) != std::string_view::npos;
    if (takes_value) next_word(rest);
    arguments = rest;
  }
}

void read_python_part(const Source& source, Collector& out, bool magics) {
  read_nested(out, std::nullopt, [&] { read_python_source(source, out, {.magics = magics}); });
}

// %load_ext x, %reload_ext x
void read_extension(std::string_view arguments, std::uint32_t line, Collector& out) {
  auto name = next_word(arguments);
  while (!name.empty() && (name.back() == ';' || name.back() == ',')) name.remove_suffix(1);
  static constexpr std::array<std::string_view, 2> kOwn = {"autoreload", "storemagic"};
  if (std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end()) {
    add_module("IPython.extensions." + std::string(name), line, out);
  } else if (is_dotted(name)) {
    add_module(name, line, out);
  }
}

// %run script.py, %run other.ipynb, %run -m package.module
void read_run(std::string_view arguments, std::uint32_t line, Collector& out) {
  while (true) {
    const auto word = next_word(arguments);
    if (word.empty()) return;
    if (word == "-m") {
      const auto module = next_word(arguments);
      if (is_dotted(module)) add_module(module, line, out);
      return;
    }
    if (word.front() == '-') {
      if (word == "-N" || word == "-l") next_word(arguments);
      continue;
    }
    std::string_view file = word;
    while (!file.empty() && (file.front() == '"' || file.front() == '\'')) file.remove_prefix(1);
    while (!file.empty() && (file.back() == '"' || file.back() == '\'' || file.back() == ';')) file.remove_suffix(1);
    if (file.empty() || file.size() > kMaxNameBytes) return;
    out.add(Import{.name = std::string(file), .module = {}, .kind = ImportKind::kMagic, .local = true, .line = line});
    return;
  }
}

// %aimport a, -b
void read_aimport(std::string_view arguments, std::uint32_t line, Collector& out) {
  while (!trimmed(arguments).empty()) {
    auto name = next_word(arguments);
    while (!name.empty() && name.back() == ',') name.remove_suffix(1);
    if (is_dotted(name)) add_module(name, line, out);
  }
}

void read_line_magic(const Source& source, std::string_view text, Collector& out) {
  const auto magic = split_magic(text);
  const auto line = source.line_of(source.begin());
  if (magic.name == "pip" || magic.name == "conda" || magic.name == "mamba" || magic.name == "micromamba" ||
      magic.name == "uv") {
    read_shell_commands(source.part(between(magic.name.data(), source.end())), out, {});
    return;
  }
  if (magic.name == "load_ext" || magic.name == "reload_ext") return read_extension(magic.arguments, line, out);
  if (magic.name == "run") return read_run(magic.arguments, line, out);
  if (magic.name == "aimport") return read_aimport(magic.arguments, line, out);
  if (magic.name == "system" || magic.name == "sx" || magic.name == "sc") {
    return read_shell_commands(source.part(magic.arguments), out, {});
  }
  const auto* facts = find_magic(magic.name);
  if (!facts) return;
  add_modules_of(facts, line, out);
  if (facts->code_in_line)
    read_python_part(source.part(skip_options(magic.arguments, facts->value_options)), out, true);
}

// %%writefile [-a] name
void read_file_body(std::string_view arguments, const Source& body, Collector& out) {
  auto name = next_word(arguments);
  while (!name.empty() && name.front() == '-') name = next_word(arguments);
  while (!name.empty() && (name.back() == '"' || name.back() == '\'')) name.remove_suffix(1);
  const bool outer = out.written_file;
  out.written_file = true;
  const bool unknown = name.find_first_of("${") != std::string_view::npos && !name.ends_with(".py");
  if (name.ends_with(".py") || name.ends_with(".pyx") || (unknown && looks_like_python(body.text))) {
    const PythonOptions options{.magics = false, .cython = name.ends_with("x")};
    read_nested(out, std::nullopt, [&] { read_python_source(body, out, options); });
  } else if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    read_targets(body, out);
  }
  out.written_file = outer;
}

// %%script bash, %%script python3 -u
MagicBody script_body(std::string_view arguments) {
  auto word = next_word(arguments);
  while (!word.empty() && word.front() == '-') word = next_word(arguments);
  if (word == "env" || word.ends_with("/env")) word = next_word(arguments);
  word = name_of(word);
  if (word == "bash" || word == "sh" || word == "zsh") return MagicBody::kShell;
  return word.starts_with("python") || word.starts_with("pypy") ? MagicBody::kPython : MagicBody::kOther;
}

void read_body(MagicBody kind, std::string_view arguments, const Source& body, Collector& out) {
  switch (kind) {
    case MagicBody::kPython:
      read_python_part(body, out, true);
      break;
    case MagicBody::kCython:
      read_nested(out, std::nullopt, [&] { read_python_source(body, out, {.magics = false, .cython = true}); });
      break;
    case MagicBody::kShell:
      read_shell_source(body, out);
      break;
    case MagicBody::kFile:
      read_file_body(arguments, body, out);
      break;
    case MagicBody::kScript: {
      const auto script = script_body(arguments);
      if (script != MagicBody::kOther) read_body(script, arguments, body, out);
      break;
    }
    case MagicBody::kUnknown:
      if (looks_like_python(body.text)) read_python_part(body, out, true);
      break;
    case MagicBody::kOther:
      break;
  }
}

constexpr std::array<std::string_view, 9> kAutomagicTools = {"pip", "pip3", "conda",   "mamba", "micromamba",
                                                             "uv",  "apt",  "apt-get", "sudo"};
constexpr std::array<std::string_view, 5> kAutomagics = {"matplotlib", "pylab", "load_ext", "reload_ext", "run"};

bool is_one_of(std::string_view word, const auto& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

void read_cell_magic(const Source& source, Collector& out) {
  const char* stop = find_newline(source.begin(), source.end());
  const auto first = between(source.begin(), stop);
  const auto magic = split_magic(first.substr(2));
  const auto body = source.part(between(skip_newline(stop, source.end()), source.end()));
  const auto* facts = find_magic(magic.name);
  add_modules_of(facts, source.line_of(source.begin()), out);
  if (facts && facts->code_in_line && !magic.arguments.empty()) {
    read_python_part(source.part(skip_options(magic.arguments, facts->value_options)), out, true);
  }
  read_body(facts ? facts->body : MagicBody::kUnknown, magic.arguments, body, out);
}

bool read_late_cell_magic(const Source& source, Collector& out) {
  const char* stop = find_newline(source.begin(), source.end());
  const auto* facts = find_magic(split_magic(between(source.begin(), stop).substr(2)).name);
  if (!facts || facts->body == MagicBody::kPython || facts->body == MagicBody::kUnknown) return false;
  read_cell_magic(source, out);
  return true;
}

void read_escaped_line(const Source& source, Collector& out) {
  auto text = source.text;
  if (text.starts_with('!')) {
    text.remove_prefix(text.starts_with("!!") ? 2 : 1);
    read_shell_commands(source.part(text), out, {});
  } else if (text.starts_with('%')) {
    text.remove_prefix(text.starts_with("%%") ? 2 : 1);
    if (text.starts_with('!')) return read_escaped_line(source.part(text), out);  // "%!ls", as some write it
    read_line_magic(source, text, out);
  }
}

bool may_be_automagic(std::string_view word) {
  switch (word.front()) {
    case 'p':
    case 'c':
    case 'm':
    case 'u':
    case 'a':
    case 's':
    case 'l':
    case 'r':
      break;
    default:
      return false;
  }
  return is_one_of(word, kAutomagicTools) || is_one_of(word, kAutomagics);
}

bool is_automagic(std::string_view line) {
  auto rest = line;
  const auto first = next_word(rest);
  const auto second = next_word(rest);
  if (is_one_of(first, kAutomagicTools)) {
    static constexpr std::array<std::string_view, 10> kVerbs = {"install", "uninstall", "add",     "pip", "remove",
                                                                "create",  "update",    "upgrade", "apt", "apt-get"};
    return is_one_of(second, kVerbs) || (!second.empty() && second.front() == '-' && second.size() > 1 &&
                                         !is_digit(second[1]) && line.find(" install ") != std::string_view::npos);
  }
  if (first == "matplotlib" || first == "pylab") {
    static constexpr std::array<std::string_view, 9> kBackends = {"inline", "notebook", "widget", "ipympl", "qt",
                                                                  "qt5",    "tk",       "osx",    "agg"};
    return is_one_of(second, kBackends);
  }
  if (first == "run") return second.ends_with(".py") || second.ends_with(".ipynb");
  return (first == "load_ext" || first == "reload_ext") && is_dotted(second);
}

void read_automagic_line(const Source& source, Collector& out) {
  auto rest = source.text;
  if (is_one_of(next_word(rest), kAutomagicTools)) return read_shell_commands(source, out, {.installs_only = true});
  read_line_magic(source, source.text, out);
}

}  // namespace varve::notebooks
