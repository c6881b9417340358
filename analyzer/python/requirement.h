#pragma once
// Requirements: "requests[socks]>=2.8.1; python_version < '3.8'". PEP 508, 685;
// packaging.python.org/specifications/dependency-specifiers. One include for names, versions, specifiers and markers
// too.
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/python/marker.h"
#include "analyzer/python/name.h"
#include "analyzer/python/version.h"

namespace varve::python {

inline constexpr std::size_t kMaxRequirementBytes = 65536;
// Of all requirements of one distribution: further ones are given back unread. They take up to a hundred times their
// text in memory.
inline constexpr std::size_t kMaxRequirementsBytes = 1u << 20;

struct Requirement {
  std::string name;  // as written
  std::string normalized;
  std::set<std::string> extras;  // normalised
  SpecifierSet specifier;
  std::string url;  // of "name @ url"; "" = none
  std::optional<Marker> marker;
  std::string text;  // as written; with its section's marker if it is of a requires.txt
  // Absent when the line is no requirement.
  static std::optional<Requirement> parse(std::string_view text);
};

// The name that a line begins with, requirement or not: "numpy" of the outdated "numpy>=1.8.*". "" = none.
std::string requirement_name(std::string_view text);

// requires.txt of an egg-info: "[extra:marker]" sections become markers of the requirements, as importlib.metadata
// does.
struct RequiresText {
  std::vector<Requirement> requirements;
  std::vector<std::string> extras;      // section names, as written, in order
  std::vector<std::string> unreadable;  // lines that are no requirements
};
RequiresText parse_requires_txt(std::string_view text);

}  // namespace varve::python
