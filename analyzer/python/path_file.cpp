#include "analyzer/python/path_file.h"

#include "analyzer/python/internal/python_literal.h"
#include "analyzer/python/internal/text.h"
#include "analyzer/python/module_file.h"
#include "core/base/errors.h"

namespace varve::python {

namespace {

// "import a, b.c as d" and "from e import f" at the start of a statement.
void collect_imports(std::string_view statement, std::set<std::string>& out) {
  statement = trim(statement);
  const auto add = [&](std::string_view name) {
    name = trim(name);
    name = name.substr(0, name.find_first_of(" \t"));
    if (is_dotted_name(name)) out.emplace(name);
  };
  if (statement.starts_with("from ")) return add(statement.substr(5));
  if (!statement.starts_with("import ") && !statement.starts_with("import\t")) return;
  statement.remove_prefix(7);
  while (!statement.empty()) add(take_until(statement, ','));
}

// Calls `got` with what follows each occurrence of `before`.
template <typename Got>
void for_each_after(std::string_view text, std::string_view before, Got&& got) {
  for (auto at = text.find(before); at != std::string_view::npos; at = text.find(before, at + before.size())) {
    got(text.substr(at + before.size()));
  }
}

// setuptools' namespace files make each namespace package by hand: "… f_locals['sitedir'], *('google', 'cloud',)); …".
void collect_namespaces(std::string_view line, std::set<std::string>& out) {
  for_each_after(line, "f_locals['sitedir'], *", [&](std::string_view rest) {
    const auto parts = take_literal(rest);
    if (!parts || parts->kind != Literal::Kind::kList) return;
    std::string dotted;
    for (const auto& part : parts->items) dotted += (dotted.empty() ? "" : ".") + part.text;
    if (is_dotted_name(dotted)) out.insert(dotted);
  });
}

void read_code_line(std::string_view line, PathFile& out) {
  out.code.emplace_back(line);
  for_each_after(line, "__import__(", [&](std::string_view rest) {
    const auto name = take_literal(rest);
    if (name && name->is_text() && is_dotted_name(name->text)) out.modules.insert(name->text);
  });
  collect_namespaces(line, out.namespaces);
  while (!line.empty()) collect_imports(take_until(line, ';'), out.modules);
}

// What follows "NAME =" or "NAME: … =" at the start of a line; absent if no line begins so.
std::optional<std::string_view> assigned(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    auto rest = text;
    const auto line = take_line(text);
    if (!line.starts_with(name)) continue;
    rest.remove_prefix(name.size());
    const auto tail = trim_left(line.substr(name.size()));
    if (!tail.starts_with('=') && !tail.starts_with(':')) continue;
    const auto equals = rest.find('=');
    if (equals == std::string_view::npos || equals > line.size()) continue;
    return rest.substr(equals + 1);
  }
  return std::nullopt;
}

// Dotted names and one path each.
bool read_mapping(const Literal& literal, std::map<std::string, std::string>& out) {
  if (literal.kind == Literal::Kind::kList && literal.items.empty()) return true;
  if (literal.kind != Literal::Kind::kDict) return false;
  for (std::size_t i = 0; i + 1 < literal.items.size(); i += 2) {
    const auto& key = literal.items[i];
    const auto& value = literal.items[i + 1];
    if (!key.is_text() || !value.is_text()) return false;
    out[key.text] = value.text;
  }
  return true;
}

bool read_namespaces(const Literal& literal, std::map<std::string, std::vector<std::string>>& out) {
  if (literal.kind != Literal::Kind::kDict) return false;
  for (std::size_t i = 0; i + 1 < literal.items.size(); i += 2) {
    if (!literal.items[i].is_text() || literal.items[i + 1].kind != Literal::Kind::kList) return false;
    auto& folders = out[literal.items[i].text];
    for (const auto& folder : literal.items[i + 1].items) {
      if (!folder.is_text()) return false;
      folders.push_back(folder.text);
    }
  }
  return true;
}

[[noreturn]] void fail_on(std::string_view what, std::string_view part) {
  fail<CorruptData>("{}: {} is no literal that can be read", what, part);
}

// MAPPING and NAMESPACES of setuptools.
bool read_setuptools(std::string_view text, std::string_view what, EditableFinder& out) {
  auto mapping = assigned(text, "MAPPING");
  if (!mapping) return false;
  const auto modules = take_literal(*mapping);
  if (!modules || !read_mapping(*modules, out.mapping)) fail_on(what, "MAPPING");
  if (auto namespaces = assigned(text, "NAMESPACES")) {
    const auto folders = take_literal(*namespaces);
    if (!folders || !read_namespaces(*folders, out.namespaces)) fail_on(what, "NAMESPACES");
  }
  return true;
}

// F.map_module('foo', '/home/me/foo/__init__.py') of the library `editables`, which hatchling and pdm use.
bool read_editables(std::string_view text, std::string_view what, EditableFinder& out) {
  bool found = false;
  for_each_after(text, ".map_module", [&](std::string_view rest) {
    const auto arguments = take_literal(rest);
    if (!arguments || arguments->items.size() != 2 || !arguments->items[0].is_text() || !arguments->items[1].is_text())
      fail_on(what, "map_module(…)");
    out.mapping[arguments->items[0].text] = arguments->items[1].text;
    found = true;
  });
  return found;
}

// install({module: source file}, {module: file in the site folder}, …) of scikit-build-core, at the start of a line.
bool read_scikit_build(std::string_view text, std::string_view what, EditableFinder& out) {
  constexpr std::string_view kCall = "\ninstall(";
  const auto at = text.rfind(kCall);
  if (at == std::string_view::npos) return false;
  auto rest = text.substr(at + kCall.size());
  skip_python_space(rest);
  if (!rest.starts_with('{')) return false;
  for (int i = 0; i < 2; ++i) {
    const auto files = take_literal(rest);
    if (!files || !read_mapping(*files, out.mapping)) fail_on(what, "install(…)");
    skip_python_space(rest);
    if (!rest.starts_with(',')) break;
    rest.remove_prefix(1);
    skip_python_space(rest);
    if (!rest.starts_with('{')) break;
  }
  return true;
}

// finder = MesonpyMetaFinder('dist', {'module', …}, build folder, …) of meson-python, whose sources only its build plan
// knows.
bool read_meson(std::string_view text, std::string_view what, EditableFinder& out) {
  bool found = false;
  for_each_after(text, "finder = MesonpyMetaFinder", [&](std::string_view rest) {
    const auto arguments = take_literal(rest);
    if (!arguments || arguments->items.size() < 3 || arguments->items[1].kind != Literal::Kind::kList ||
        !arguments->items[2].is_text()) {
      fail_on(what, "MesonpyMetaFinder(…)");
    }
    for (const auto& module : arguments->items[1].items) out.mapping[module.text] = arguments->items[2].text;
    found = true;
  });
  return found;
}

}  // namespace

PathFile parse_path_file(std::string_view text) {
  PathFile out;
  for (text = without_bom(text); !text.empty();) {
    const auto line = trim_right(take_line(text));
    if (trim(line).empty() || line.starts_with('#') || line.find('\0') != std::string_view::npos) continue;
    if (line.starts_with("import ") || line.starts_with("import\t")) {
      read_code_line(line, out);
    } else {
      out.paths.emplace_back(line);
    }
  }
  return out;
}

bool is_editable_finder_name(std::string_view module) { return module.starts_with('_') && is_identifier(module); }

std::optional<EditableFinder> parse_editable_finder(std::string_view text, std::string_view what) {
  EditableFinder out;
  text = without_bom(text);
  if (read_setuptools(text, what, out) || read_editables(text, what, out) || read_meson(text, what, out) ||
      read_scikit_build(text, what, out)) {
    return out;
  }
  return std::nullopt;
}

std::optional<EggLink> parse_egg_link(std::string_view text) {
  EggLink out;
  text = without_bom(text);
  while (!text.empty() && out.folder.empty()) out.folder = trim(take_line(text));
  while (!text.empty() && out.root.empty()) out.root = trim(take_line(text));
  if (out.folder.empty() || out.folder.find('\0') != std::string::npos || out.root.find('\0') != std::string::npos)
    return std::nullopt;
  return out;
}

}  // namespace varve::python
