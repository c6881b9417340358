// Image references and platforms as users and configuration files may write them.
#include <cstdlib>

#include "core/base/errors.h"
#include "core/oci/platform.h"
#include "core/oci/reference.h"

using namespace varve;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto reference = oci::Reference::parse(text);
    const auto again = oci::Reference::parse(reference.to_string());
    if (again.to_string() != reference.to_string() || again.selector() != reference.selector()) std::abort();
  } catch (const UsageError&) {
  }
  try {
    const auto platform = oci::Platform::parse(text);
    if (platform.normalised() != platform || oci::platform_distance(platform, platform) != 0) std::abort();
  } catch (const UsageError&) {
  }
  return 0;
}
