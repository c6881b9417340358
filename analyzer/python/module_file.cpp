#include "analyzer/python/module_file.h"

#include "analyzer/python/internal/text.h"

namespace varve::python {

namespace {

bool is_tag(std::string_view tag) {
  return tag == "abi3" || tag.starts_with("cpython-") || tag.starts_with("pypy") || tag.starts_with("graalpy") ||
         tag.ends_with("-linux-gnu") || (tag.starts_with("cp") && tag.size() > 2 && is_digit(tag[2]));
}

// "_core.cpython-311-x86_64-linux-gnu.so" -> "_core"; "" where the middle is no tag of an ABI: "libz.so.1",
// "libfoo.2.so".
std::string_view stem_of_extension(std::string_view stem) {
  const auto dot = stem.find('.');
  if (dot == std::string_view::npos) return stem;
  return is_tag(stem.substr(dot + 1)) ? stem.substr(0, dot) : std::string_view();
}

// "__pycache__/numpy.cpython-311.opt-1.pyc" -> "numpy"
std::string_view stem_of_cached(std::string_view stem) {
  const auto dot = stem.find('.');
  return dot == std::string_view::npos ? std::string_view() : stem.substr(0, dot);
}

// What the last component is without its suffix; "" if it is no module.
std::string_view read_file_name(std::string_view file, bool cached, ModuleFile& out) {
  const auto dot = file.rfind('.');
  if (dot == std::string_view::npos) return {};
  const auto suffix = file.substr(dot);
  const auto stem = file.substr(0, dot);
  out.bytecode = suffix == ".pyc";
  out.extension = suffix == ".so" || suffix == ".pyd";
  if (cached) return out.bytecode ? stem_of_cached(stem) : std::string_view();
  if (out.extension) return stem_of_extension(stem);
  return out.bytecode || suffix == ".py" ? stem : std::string_view();
}

}  // namespace

bool is_identifier(std::string_view text) {
  const auto fits = [](char c) { return is_alnum(c) || c == '_' || (c & 0x80) != 0; };
  return !text.empty() && !is_digit(text.front()) && std::ranges::all_of(text, fits);
}

bool is_dotted_name(std::string_view text) {
  do {
    if (!is_identifier(text.substr(0, text.find('.')))) return false;
    if (text.ends_with('.')) return false;
    take_until(text, '.');
  } while (!text.empty());
  return true;
}

std::optional<ModuleFile> module_of_file(std::string_view path) {
  ModuleFile out;
  bool cached = false;
  for (auto slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/')) {
    const auto folder = path.substr(0, slash);
    path.remove_prefix(slash + 1);
    if (cached || !is_identifier(folder)) return std::nullopt;
    cached = folder == "__pycache__";
    if (cached) continue;
    if (!out.dotted.empty()) out.dotted += '.';
    out.dotted += folder;
  }
  const auto stem = read_file_name(path, cached, out);
  if (!is_identifier(stem)) return std::nullopt;
  if (stem == "__init__") {
    out.package = true;
    if (out.dotted.empty()) return std::nullopt;
    return out;
  }
  if (!out.dotted.empty()) out.dotted += '.';
  out.dotted += stem;
  return out;
}

VirtualEnvironment parse_pyvenv_cfg(std::string_view text) {
  VirtualEnvironment out;
  for (text = without_bom(text); !text.empty();) {
    auto value = take_line(text);
    if (value.find('=') == std::string_view::npos) continue;
    const auto key = to_lower(trim(take_until(value, '=')));
    value = trim(value);
    if (key == "home") {
      out.home = value;
    } else if (key == "version" || key == "version_info") {
      // virtualenv and uv write "3.11.2.final.0".
      if (const auto word = value.find(".final"); word != std::string_view::npos) value = value.substr(0, word);
      if (out.version.empty()) out.version = value;
    } else if (key == "implementation") {
      out.implementation = value;
    } else if (key == "include-system-site-packages") {
      out.system_site_packages = to_lower(value) == "true";
    }
  }
  return out;
}

}  // namespace varve::python
