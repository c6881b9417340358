#pragma once
// Which module a file of a site folder is, and the configuration of a virtual environment. importlib's suffixes, PEP
// 3147, 3149, 405.
#include <optional>
#include <string>
#include <string_view>

namespace varve::python {

struct ModuleFile {
  std::string dotted;      // "google.cloud.storage" of "google/cloud/storage/__init__.py"
  bool package = false;    // an __init__ file
  bool extension = false;  // .so or .pyd
  bool bytecode = false;   // .pyc; in __pycache__ it is named by its source
};
// `path` relative to the site folder, "/" between components. Absent when Python cannot import it by its name: other
// suffixes, components that are no identifiers, anything below "*.dist-info", "*.egg-info", "*.data". Case and Unicode
// as written.
std::optional<ModuleFile> module_of_file(std::string_view path);

// ASCII or not; no keyword check.
bool is_identifier(std::string_view text);

// Identifiers with single dots between them.
bool is_dotted_name(std::string_view text);

// pyvenv.cfg. Fields are "" where not said.
struct VirtualEnvironment {
  std::string home;            // folder of the base interpreter
  std::string version;         // "3.11.2" ("version" of venv, the numbers of "version_info" of virtualenv and uv)
  std::string implementation;  // "CPython", where said
  bool system_site_packages = false;
};
VirtualEnvironment parse_pyvenv_cfg(std::string_view text);

}  // namespace varve::python
