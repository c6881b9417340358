#include "analyzer/python/core_metadata.h"

#include <utility>

#include "analyzer/python/internal/text.h"
#include "analyzer/python/module_file.h"
#include "core/base/text/utf8.h"

namespace varve::python {

namespace {

// Printable ASCII without ":"; RFC 822 has it so.
bool is_field_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

std::string_view first_line(std::string_view text) {
  text = trim(text);
  return trim(text.substr(0, text.find('\n')));
}

// Folded lines become one.
std::string unfold(std::string_view value) {
  std::string out;
  while (!value.empty()) {
    const auto line = trim(take_line(value));
    if (!out.empty() && !line.empty()) out += ' ';
    out += line;
  }
  return out;
}

void set_once(std::string& field, std::string value) {
  if (field.empty()) field = std::move(value);
}

void add_import_name(std::optional<std::vector<ImportName>>& names, std::string_view value) {
  if (!names) names.emplace();
  ImportName out;
  out.name = trim(take_until(value, ';'));
  out.is_private = to_lower(trim(value)) == "private";
  if (is_dotted_name(out.name)) names->push_back(std::move(out));
}

void add_requirement(CoreMetadata& metadata, const std::string& line, std::size_t& read) {
  read += line.size();
  if (auto requirement = read <= kMaxRequirementsBytes ? Requirement::parse(line) : std::nullopt) {
    metadata.requires_dist.push_back(std::move(*requirement));
  } else {
    metadata.unreadable_requires.push_back(line);
  }
}

// `name` in lower case, `value` with its folded lines; `requirements_read` counts bytes.
void take_field(CoreMetadata& metadata, std::string_view name, std::string_view value, std::size_t& requirements_read) {
  const auto text = [&] { return repair_utf8(unfold(value)); };
  if (name == "metadata-version") {
    set_once(metadata.metadata_version, text());
  } else if (name == "name") {
    set_once(metadata.name, text());
  } else if (name == "version") {
    set_once(metadata.version, text());
  } else if (name == "requires-python") {
    set_once(metadata.requires_python, text());
  } else if (name == "summary") {
    set_once(metadata.summary, repair_utf8(first_line(value)));
  } else if (name == "license-expression") {
    metadata.license = text();
  } else if (name == "license") {
    set_once(metadata.license, repair_utf8(first_line(value)));
  } else if (name == "requires-dist") {
    add_requirement(metadata, text(), requirements_read);
  } else if (name == "provides-extra") {
    metadata.provides_extras.push_back(text());
  } else if (name == "import-name") {
    add_import_name(metadata.import_names, text());
  } else if (name == "import-namespace") {
    add_import_name(metadata.import_namespaces, text());
  } else if (name == "dynamic") {
    metadata.dynamic_requires |= to_lower(text()) == "requires-dist";
  }
}

}  // namespace

// As the mail parser of Python's library reads it: an empty line or one that is no field begins the body, where
// descriptions stand that may hold anything.
CoreMetadata parse_core_metadata(std::string_view text) {
  CoreMetadata out;
  std::size_t requirements_read = 0;
  text = without_bom(text);
  for (std::size_t fields = 0; !text.empty() && fields < kMaxMetadataFields; ++fields) {
    const auto line = take_line(text);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || !is_field_name(line.substr(0, colon))) {
      if (fields == 0 && !trim(line).empty()) continue;
      break;
    }
    const char* const value = line.data() + colon + 1;
    const char* end = line.data() + line.size();
    while (!text.empty() && is_blank(text.front())) {
      const auto folded = take_line(text);
      end = folded.data() + folded.size();
    }
    take_field(out, to_lower(line.substr(0, colon)), {value, std::size_t(end - value)}, requirements_read);
  }
  return out;
}

}  // namespace varve::python
