#include "analyzer/python/stdlib_names.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>

#include "analyzer/python/internal/text.h"

namespace varve::python {

namespace {

struct StdlibName {
  std::string_view name;
  std::uint16_t versions;  // bit 0: 2.7; bit n: 3.(5 + n)
};

constexpr StdlibName kStdlib[] = {
#include "analyzer/python/stdlib_table.inc"
};
static_assert(std::ranges::is_sorted(kStdlib, {}, &StdlibName::name));

constexpr unsigned kOldestMinor = 6, kNewestMinor = 14;
constexpr std::uint16_t kAnyVersion = 0xFFFF;

std::uint16_t bits_of(std::string_view version) {
  if (version.empty()) return kAnyVersion;
  const auto major = take_until(version, '.');
  if (major != "3") return major == "2" ? 1 : kAnyVersion;
  version = version.substr(0, version.find('.'));
  unsigned minor = kNewestMinor;
  if (!version.empty()) std::from_chars(version.data(), version.data() + version.size(), minor);
  return std::uint16_t(1u << (std::clamp(minor, kOldestMinor, kNewestMinor) - 5));
}

}  // namespace

bool is_stdlib(std::string_view module, std::string_view version) {
  const auto top = module.substr(0, module.find('.'));
  const auto* const found = std::ranges::lower_bound(kStdlib, top, {}, &StdlibName::name);
  return found != std::end(kStdlib) && found->name == top && (found->versions & bits_of(version)) != 0;
}

}  // namespace varve::python
