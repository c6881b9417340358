// Any text as a notification: read, or refused; what is read are names that references may have.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/oci/reference.h"
#include "webhook/events.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  try {
    const auto found = webhook::parse_notification({reinterpret_cast<const char*>(data), size});
    for (const auto& one : found.pushed) {
      if (webhook::is_tag_beside_image(one.tag)) std::abort();
      const auto reference = oci::Reference::parse(
          "registry.invalid/" + one.repository + (one.tag.empty() ? "" : ":" + one.tag) + "@" + one.digest.to_string());
      if (reference.host != "registry.invalid" || reference.repository != one.repository) std::abort();
    }
  } catch (const CorruptData&) {
  } catch (const Unsupported&) {
  }
  return 0;
}
