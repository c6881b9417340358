// The payload of simple signing: what is accepted names one manifest, and the same in our own words.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/trust/docker_name.h"
#include "core/trust/simple_signing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto payload = trust::SignedPayload::parse(bytes, "input");
    const auto again = trust::SignedPayload::parse(as_bytes(payload.to_json("fuzz", 1)), "again");
    if (again.manifest != payload.manifest || again.docker_reference != payload.docker_reference) std::abort();
    if (const auto name = trust::DockerName::parse(payload.docker_reference)) {
      const auto same = trust::DockerName::parse(name->to_string());
      if (!same || same->to_string() != name->to_string()) std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
