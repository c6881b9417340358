#include "core/oci/platform.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "core/base/errors.h"
#include "core/base/text/strings.h"

namespace varve::oci {
namespace {

struct Alias {
  std::string_view name;
  std::string_view architecture;
  std::string_view variant;
};

// What uname and users say -> what Go, and therefore every image, says.
constexpr std::array kAliases = {
    Alias{"x86_64", "amd64", ""}, Alias{"x86-64", "amd64", ""}, Alias{"aarch64", "arm64", ""},
    Alias{"armhf", "arm", "v7"},  Alias{"armel", "arm", "v6"},  Alias{"armv7l", "arm", "v7"},
    Alias{"armv6l", "arm", "v6"}, Alias{"i386", "386", ""},     Alias{"i486", "386", ""},
    Alias{"i586", "386", ""},     Alias{"i686", "386", ""},     Alias{"ppc64el", "ppc64le", ""},
};

// The part of the architecture that all processors of the family have, as a number to count down from.
std::optional<int> variant_level(const Platform& platform) {
  if (platform.variant.empty()) {
    if (platform.architecture == "amd64") return 1;
    if (platform.architecture == "arm64") return 8;
    return 0;
  }
  if (platform.variant.size() == 2 && platform.variant[0] == 'v' &&
      std::isdigit(static_cast<unsigned char>(platform.variant[1])))
    return platform.variant[1] - '0';
  return std::nullopt;
}

// GOARCH names of Linux: "foo" alone is a slip, and no architecture that no image has.
constexpr std::array<std::string_view, 14> kArchitectures = {"386",     "amd64",   "arm",      "arm64",  "loong64",
                                                             "mips",    "mips64",  "mips64le", "mipsle", "ppc64",
                                                             "ppc64le", "riscv64", "s390x",    "wasm"};

bool is_plain_word(std::string_view word) {
  return !word.empty() && word.size() <= 64 && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

Platform Platform::parse(std::string_view text) {
  std::vector<std::string_view> parts;
  for (auto rest = text;;) {
    const auto slash = rest.find('/');
    parts.push_back(rest.substr(0, slash));
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  if (parts.size() > 3 || !std::all_of(parts.begin(), parts.end(), is_plain_word))
    fail<UsageError>("'{}' is no platform; write os/arch or os/arch/variant, as in linux/amd64", text);
  Platform platform{.os = "linux", .architecture = std::string(parts.back()), .variant = {}};
  if (parts.size() == 1 &&
      std::ranges::find(kArchitectures, platform.normalised().architecture) == kArchitectures.end())
    fail<UsageError>("'{}' is no platform; write os/arch or os/arch/variant, as in linux/amd64", text);
  if (parts.size() >= 2) {
    platform.os = parts[0];
    platform.architecture = parts[1];
  }
  if (parts.size() == 3) platform.variant = parts[2];
  return platform.normalised();
}

Platform Platform::of_this_machine() {
  utsname machine{};
  if (::uname(&machine) != 0) fail_errno("ask the kernel for the machine's name");
  return Platform{.os = to_lower(machine.sysname), .architecture = machine.machine, .variant = {}}.normalised();
}

Platform Platform::normalised() const {
  Platform result{.os = to_lower(os), .architecture = to_lower(architecture), .variant = to_lower(variant)};
  const auto alias =
      std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& a) { return a.name == result.architecture; });
  if (alias != kAliases.end()) {
    result.architecture = alias->architecture;
    if (result.variant.empty()) result.variant = alias->variant;
  }
  // "7" and "v7" are both written.
  if (result.variant.size() == 1 && std::isdigit(static_cast<unsigned char>(result.variant[0])))
    result.variant.insert(0, "v");
  if (result.architecture == "arm64" && result.variant == "v8") result.variant.clear();
  if (result.architecture == "amd64" && result.variant == "v1") result.variant.clear();
  if (result.architecture == "arm" && result.variant.empty()) result.variant = "v7";
  return result;
}

std::string Platform::to_string() const {
  auto text = os + '/' + architecture;
  if (!variant.empty()) text += '/' + variant;
  return text;
}

int platform_distance(const Platform& wanted_as_written, const Platform& offered_as_written) {
  const auto wanted = wanted_as_written.normalised();
  const auto offered = offered_as_written.normalised();
  if (wanted.os != offered.os || wanted.architecture != offered.architecture) return -1;
  if (wanted.variant == offered.variant) return 0;
  const auto wanted_level = variant_level(wanted);
  const auto offered_level = variant_level(offered);
  if (!wanted_level || !offered_level || *offered_level > *wanted_level) return -1;
  return *wanted_level - *offered_level;
}

}  // namespace varve::oci
