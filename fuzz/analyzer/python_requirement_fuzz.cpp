// Each line as a version, a specifier, a marker and a requirement. What is taken must keep its meaning when written
// again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/python/requirement.h"

namespace {

using namespace varve::python;

void require(bool fact) {
  if (!fact) std::abort();
}

void try_version(std::string_view text, const std::optional<SpecifierSet>& specifier) {
  const auto version = Version::parse(text);
  if (!version) return;
  const auto again = Version::parse(version->normalized());
  require(again && *again == *version && again->normalized() == version->normalized());
  require(!(*version < *again) && !(*again < *version));
  if (!specifier) return;
  const bool finals = specifier->contains(*version, false);
  require(!finals || specifier->contains(*version, true));
}

void try_marker(std::string_view text) {
  const auto marker = Marker::parse(text);
  if (!marker) return;
  const Environment environment{
      {"python_version", "3.11"}, {"python_full_version", "3.11.2+"}, {"sys_platform", "linux"}};
  const auto again = Marker::parse(marker->text());
  require(again.has_value());
  require(again->holds(environment, "x") == marker->holds(environment, "x"));
  for (const auto& extra : marker->extras()) marker->holds(environment, extra);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  parse_requires_txt(text);
  std::optional<SpecifierSet> specifier;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (auto parsed = SpecifierSet::parse(line)) specifier = std::move(parsed);
    try_version(line, specifier);
    try_marker(line);
    if (const auto requirement = Requirement::parse(line)) {
      require(requirement_name(line) == requirement->name);
      require(normalize_name(requirement->name) == requirement->normalized);
    }
    parse_record_name(line);
  }
  return 0;
}
