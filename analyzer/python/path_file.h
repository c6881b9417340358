#pragma once
// What puts code outside a site folder onto sys.path: .pth files, .egg-link, easy-install.pth, finders of editable
// installs. PEP 660, site.py, setuptools, editables.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace varve::python {

// A .pth file as site.py reads it.
struct PathFile {
  std::vector<std::string> paths;    // as written, relative ones to the site folder
  std::vector<std::string> code;     // "import …" lines, which a starting Python runs
  std::set<std::string> modules;     // that the code lines import, e.g. "__editable___foo_1_0_finder", "_virtualenv",
                                     // "distutils-precedence"'s "os"
  std::set<std::string> namespaces;  // dotted: declared by the lines of a "*-nspkg.pth"
};
PathFile parse_path_file(std::string_view text);

// True of "__editable___foo_1_0_finder", "_foo" and the like: modules whose file may be read with
// parse_editable_finder().
bool is_editable_finder_name(std::string_view module);

// Where an editable install's modules lie. From the generated module's text, never run.
struct EditableFinder {
  // Dotted module -> folder or file; relative ones are in the site folder. Of meson-python the build folder, which
  // names the sources.
  std::map<std::string, std::string> mapping;
  std::map<std::string, std::vector<std::string>>
      namespaces;  // dotted namespace -> folders, empty for one that only holds others
};
// Knows setuptools' MAPPING and NAMESPACES, `editables`' map_module(…), scikit-build-core's install({…}) and
// meson-python's finder. Absent when the text has none of these. Throws CorruptData when it has one that cannot be
// read.
std::optional<EditableFinder> parse_editable_finder(std::string_view text, std::string_view what = "editable finder");

// foo.egg-link: the folder with the egg-info, then the project's root relative to it.
struct EggLink {
  std::string folder;  // absolute, as written
  std::string root;    // "." as a rule; "" = not said
};
std::optional<EggLink> parse_egg_link(std::string_view text);

}  // namespace varve::python
