#include "cli/command.h"

namespace varve::cli {

oci::Image Context::open_image(const std::string& reference) const {
  oci::ImageRequest request{.reference = oci::Reference::parse(reference), .registry = global.registry};
  if (!global.platform.empty()) request.platform = oci::Platform::parse(global.platform);
  return oci::open_image(request);
}

index::LocalIndex Context::local_index() const { return index::LocalIndex(global.root, global.trust); }

}  // namespace varve::cli
