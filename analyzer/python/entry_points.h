#pragma once
// entry_points.txt. packaging.python.org/specifications/entry-points.
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace varve::python {

struct EntryPoint {
  std::string group;             // "console_scripts"
  std::string name;              // "jupyter"
  std::string module;            // "jupyter_core.command"
  std::string attribute;         // "main"; "" = the module itself
  std::set<std::string> extras;  // as written
  std::string target() const { return attribute.empty() ? module : module + ":" + attribute; }
};

struct EntryPoints {
  std::vector<EntryPoint> entries;      // in order
  std::vector<std::string> unreadable;  // lines that are none
};
// Never throws on bad text. Entries of equal names are all given.
EntryPoints parse_entry_points(std::string_view text);

}  // namespace varve::python
