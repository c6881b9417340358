// policy.json: whatever it holds is refused with an error of ours, or decides for any image.
#include <cstdint>

#include "core/base/errors.h"
#include "core/trust/containers_policy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto policy = trust::ContainersPolicy::parse(bytes, "input");
    for (const auto* image : {"r.example/team/app:v1", "busybox", "/srv/layout:v1", ""}) {
      for (const auto* transport : {"docker", "oci"}) {
        for (const auto& one : policy.requirements_for(transport, image).requirements)
          one.identity.accepts(image, as_text(bytes).substr(0, 300));
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
