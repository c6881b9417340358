#include "core/base/errors.h"
#include "core/oci/layout.h"
#include "core/oci/repository.h"

namespace varve::oci {

std::shared_ptr<Repository> open_repository(const Reference& reference, const RegistryOptions&) {
  if (reference.kind == Reference::Kind::kLayout) return std::make_shared<LayoutRepository>(reference.layout_dir);
  fail<Unsupported>("{}: registries are not reachable yet, only OCI layout folders", reference.to_string());
}

}  // namespace varve::oci
