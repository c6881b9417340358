#include "core/oci/platform.h"

#include <sys/utsname.h>

#include <algorithm>
#include <vector>

#include "core/base/errors.h"

namespace varve::oci {
namespace {

// The number in "v7"; 0 if the variant is none of this form.
int variant_number(std::string_view variant) {
  if (variant.size() != 2 || variant[0] != 'v' || variant[1] < '0' || variant[1] > '9') return 0;
  return variant[1] - '0';
}

// The variant that having none means, so that variants can be compared.
int level_of(const Platform& platform) {
  if (!platform.variant.empty()) return variant_number(platform.variant);
  if (platform.architecture == "arm") return 7;
  if (platform.architecture == "arm64") return 8;
  if (platform.architecture == "amd64") return 1;
  return 0;
}

}  // namespace

Platform Platform::parse(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const auto slash = std::min(text.find('/', start), text.size());
    parts.emplace_back(text.substr(start, slash - start));
    start = slash + 1;
  }
  if (parts.size() > 3 || std::ranges::any_of(parts, &std::string::empty)) fail<UsageError>("'{}' is not a platform: write os/arch[/variant]", text);
  if (parts.size() == 1) return Platform{"linux", parts[0], ""}.normalised();
  return Platform{parts[0], parts[1], parts.size() == 3 ? parts[2] : ""}.normalised();
}

Platform Platform::of_this_machine() {
  utsname name{};
  ::uname(&name);
  return Platform{"linux", name.machine, ""}.normalised();
}

Platform Platform::normalised() const {
  Platform result = *this;
  const auto lower = [](std::string& text) { std::ranges::transform(text, text.begin(), [](unsigned char c) { return char(std::tolower(c)); }); };
  lower(result.os);
  lower(result.architecture);
  lower(result.variant);
  auto& architecture = result.architecture;
  if (architecture == "x86_64" || architecture == "x86-64") architecture = "amd64";
  if (architecture == "aarch64") architecture = "arm64";
  if (architecture == "i386" || architecture == "i686") architecture = "386";
  if (architecture == "armhf" || architecture == "armv7l") result = {result.os, "arm", "v7"};
  if (architecture == "armel" || architecture == "armv6l") result = {result.os, "arm", "v6"};
  if (result.architecture == "arm64" && (result.variant == "v8" || result.variant == "8")) result.variant.clear();
  if (result.architecture == "amd64" && result.variant == "v1") result.variant.clear();
  if (result.architecture == "arm" && result.variant.empty()) result.variant = "v7";
  if (result.variant.size() == 1 && result.variant[0] >= '0' && result.variant[0] <= '9') result.variant = "v" + result.variant;
  return result;
}

std::string Platform::to_string() const { return os + "/" + architecture + (variant.empty() ? "" : "/" + variant); }

int platform_distance(const Platform& wanted_as_given, const Platform& offered_as_given) {
  const auto wanted = wanted_as_given.normalised();
  const auto offered = offered_as_given.normalised();
  if (wanted.os != offered.os || wanted.architecture != offered.architecture) return -1;
  const int distance = level_of(wanted) - level_of(offered);
  return distance >= 0 ? distance : -1;
}

}  // namespace varve::oci
