#pragma once
// Names, versions, requirements and markers of Python packaging. PEP 440, 503, 508, 685; packaging.python.org/specifications.
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace varve::python {

// PEP 503: lower case, runs of "-_." become one "-".
std::string normalize_name(std::string_view name);

// PEP 440. Absent when the text is no version (then compare it as text, as pip does for legacy ones).
class Version {
 public:
  static std::optional<Version> parse(std::string_view text);
  std::strong_ordering operator<=>(const Version& other) const;
  bool operator==(const Version& other) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::vector<std::uint64_t> key_;  // the library's own form; see version.cpp
  std::string local_;
};

// "" = any version. A pre-release satisfies only specifiers that name one, as pip's resolver has it.
class SpecifierSet {
 public:
  static std::optional<SpecifierSet> parse(std::string_view text);
  bool contains(const Version& version, bool allow_prereleases) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// What markers see. Keys as PEP 508 names them: "python_version", "sys_platform", "platform_machine", …
using Environment = std::map<std::string, std::string, std::less<>>;

class Marker {
 public:
  static std::optional<Marker> parse(std::string_view text);
  // `extra`: the one extra that is asked for, "" = none.
  bool holds(const Environment& environment, std::string_view extra) const;
  const std::string& text() const { return text_; }

 private:
  struct Node;
  std::string text_;
  std::shared_ptr<const Node> root_;
};

struct Requirement {
  std::string name;          // as written
  std::string normalized;
  std::set<std::string> extras;  // normalised
  SpecifierSet specifier;
  std::string url;           // of "name @ url"; "" = none
  std::optional<Marker> marker;
  std::string text;          // as written
  // Absent when the line is no requirement.
  static std::optional<Requirement> parse(std::string_view text);
};

}  // namespace varve::python
