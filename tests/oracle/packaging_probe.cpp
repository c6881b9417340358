// Answers questions about Python packaging, one JSON array of them on standard input, one of answers on standard
// output: what test_packaging.py compares with Python's own libraries.
#include <iostream>

#include <nlohmann/json.hpp>

#include "analyzer/python/core_metadata.h"
#include "analyzer/python/dpkg.h"
#include "analyzer/python/entry_points.h"
#include "analyzer/python/install_record.h"
#include "analyzer/python/module_file.h"
#include "analyzer/python/path_file.h"
#include "analyzer/python/requirement.h"

namespace {

using namespace varve::python;
using nlohmann::json;

json about_version(const std::string& text) {
  const auto version = Version::parse(text);
  if (!version) return nullptr;
  return {version->normalized(), version->is_prerelease(), version->is_postrelease()};
}

// One row of "<", "=" and ">" per version.
json compare_all(const std::vector<std::string>& texts) {
  std::vector<Version> versions;
  for (const auto& text : texts) versions.push_back(Version::parse(text).value());
  json rows = json::array();
  for (const auto& left : versions) {
    std::string row;
    for (const auto& right : versions) row += left < right ? '<' : left > right ? '>' : left == right ? '=' : '?';
    rows.push_back(row);
  }
  return rows;
}

// "1" and "0" per version: with pre-releases allowed, then without.
json contains(const std::string& text, const std::vector<std::string>& versions) {
  const auto set = SpecifierSet::parse(text);
  if (!set) return nullptr;
  std::string all, finals;
  for (const auto& version : versions) {
    const auto parsed = Version::parse(version).value();
    all += set->contains(parsed, true) ? '1' : '0';
    finals += set->contains(parsed, false) ? '1' : '0';
  }
  return {all, finals};
}

json evaluate(const std::string& text, const json& environments, const std::vector<std::string>& extras) {
  const auto marker = Marker::parse(text);
  if (!marker) return nullptr;
  std::string out;
  for (const auto& environment : environments) {
    for (const auto& extra : extras) out += marker->holds(environment.get<Environment>(), extra) ? '1' : '0';
  }
  return out;
}

json about_requirement(const Requirement& requirement) {
  return {{"name", requirement.name},
          {"extras", requirement.extras},
          {"specifier", requirement.specifier.text()},
          {"url", requirement.url},
          {"marker", requirement.marker ? json(requirement.marker->text()) : json()}};
}

json about_requirements(const std::vector<Requirement>& requirements) {
  json out = json::array();
  for (const auto& requirement : requirements) out.push_back(about_requirement(requirement));
  return out;
}

json about_metadata(const std::string& text) {
  const auto metadata = parse_core_metadata(text);
  return {{"name", metadata.name},
          {"version", metadata.version},
          {"requires_python", metadata.requires_python},
          {"summary", metadata.summary},
          {"requires", about_requirements(metadata.requires_dist)},
          {"unreadable", metadata.unreadable_requires},
          {"extras", metadata.provides_extras}};
}

json about_entry_points(const std::string& text) {
  json out = json::array();
  for (const auto& entry : parse_entry_points(text).entries)
    out.push_back({entry.group, entry.name, entry.module, entry.attribute, entry.extras});
  return out;
}

json about_record(const std::string& text) {
  json out = json::array();
  const auto tally = read_record(text, [&](const RecordEntry& entry) {
    out.push_back({std::string(entry.path), entry.sha256 ? json(entry.sha256->hex()) : json(),
                   entry.size ? json(*entry.size) : json()});
  });
  return {{"rows", out}, {"unreadable", tally.unreadable}};
}

json about_finder(const std::string& text) {
  const auto finder = parse_editable_finder(text);
  if (!finder) return nullptr;
  return {finder->mapping, finder->namespaces};
}

json about_dpkg(const std::string& text) {
  json out = json::array();
  const auto tally = read_dpkg_status(text, DpkgFile::kStatus, [&](const DpkgPackage& package) {
    std::vector<std::vector<std::string>> depends;
    for (const auto& alternatives : package.depends) {
      auto& names = depends.emplace_back();
      for (const auto& one : alternatives) names.push_back(one.name);
    }
    out.push_back({package.name, package.version, package.architecture, package.installed, package.source,
                   package.installed_bytes ? json(*package.installed_bytes) : json(), depends});
  });
  return {{"packages", out}, {"unreadable", tally.unreadable}};
}

json answer(const json& question) {
  const auto kind = question.at(0).get<std::string>();
  const auto text = [&](std::size_t i) { return question.at(i).get<std::string>(); };
  if (kind == "version") return about_version(text(1));
  if (kind == "compare") return compare_all(question.at(1));
  if (kind == "contains") return contains(text(1), question.at(2));
  if (kind == "marker") return evaluate(text(1), question.at(2), question.at(3));
  if (kind == "metadata") return about_metadata(text(1));
  if (kind == "entry_points") return about_entry_points(text(1));
  if (kind == "record") return about_record(text(1));
  if (kind == "requires_txt") return about_requirements(parse_requires_txt(text(1)).requirements);
  if (kind == "finder") return about_finder(text(1));
  if (kind == "dpkg") return about_dpkg(text(1));
  if (kind == "normalize") return normalize_name(text(1));
  if (kind == "module") {
    const auto module = module_of_file(text(1));
    return module ? json(module->dotted) : json();
  }
  if (kind == "requirement") {
    const auto requirement = Requirement::parse(text(1));
    return requirement ? about_requirement(*requirement) : json();
  }
  throw std::invalid_argument("no such question: " + kind);
}

}  // namespace

int main() {
  const auto questions = json::parse(std::cin);
  json answers = json::array();
  for (const auto& question : questions) answers.push_back(answer(question));
  std::cout << answers.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
}
