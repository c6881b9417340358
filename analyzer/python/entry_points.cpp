#include "analyzer/python/entry_points.h"

#include <optional>
#include <utility>

#include "analyzer/python/internal/text.h"
#include "analyzer/python/module_file.h"

namespace varve::python {

namespace {

// "a.b : c.d [x, y]"
std::optional<EntryPoint> read_object(std::string_view value) {
  EntryPoint out;
  if (value.ends_with(']')) {
    const auto open = value.find('[');
    if (open == std::string_view::npos) return std::nullopt;
    auto extras = value.substr(open + 1, value.size() - open - 2);
    while (!extras.empty()) {
      if (const auto extra = trim(take_until(extras, ',')); !extra.empty()) out.extras.emplace(extra);
    }
    value = trim(value.substr(0, open));
  }
  const bool has_attribute = value.find(':') != std::string_view::npos;
  out.module = trim(take_until(value, ':'));
  out.attribute = trim(value);
  if (!is_dotted_name(out.module) || (has_attribute && !is_dotted_name(out.attribute))) return std::nullopt;
  return out;
}

}  // namespace

EntryPoints parse_entry_points(std::string_view text) {
  EntryPoints out;
  std::string group;
  for (text = without_bom(text); !text.empty();) {
    const auto line = trim(take_line(text));
    if (line.empty() || line.starts_with('#') || line.starts_with(';')) continue;
    if (line.starts_with('[') && line.ends_with(']')) {
      group = trim(line.substr(1, line.size() - 2));
      continue;
    }
    auto value = line;
    const auto name = trim(take_until(value, '='));
    auto entry = group.empty() || name.empty() ? std::nullopt : read_object(trim(value));
    if (!entry) {
      out.unreadable.emplace_back(line);
      continue;
    }
    entry->group = group;
    entry->name = name;
    out.entries.push_back(std::move(*entry));
  }
  return out;
}

}  // namespace varve::python
