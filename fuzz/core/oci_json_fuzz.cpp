// Manifests, indexes and image configs as a registry may send them.
#include "core/base/errors.h"
#include "core/oci/manifest.h"

using namespace varve;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView json(reinterpret_cast<const std::byte*>(data), size);
  const auto attempt = [](auto operation) {
    try {
      operation();
    } catch (const Error&) {
      // Refused with a message of ours; anything else thrown is a finding.
    }
  };
  for (const auto type : {oci::kOciManifestType, oci::kDockerManifestType, std::string_view()})
    attempt([&] { oci::Manifest::parse(json, type, "input"); });
  attempt([&] { oci::ImageIndex::parse(json, "input"); });
  attempt([&] { oci::ImageConfig::parse(json, "input"); });
  return 0;
}
