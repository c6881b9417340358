#include "cli/base/destination.h"

#include "core/base/errors.h"
#include "core/oci/layout.h"
#include "core/oci/registry_repository.h"

namespace varve::cli {

oci::Reference parse_destination(const std::string& destination) {
  auto reference = oci::Reference::parse(destination);
  if (reference.digest)
    fail<UsageError>("{}: write a tag, or nothing: the digest follows from the image", reference.to_string());
  if (reference.tag && oci::is_pins_tag(*reference.tag))
    fail<UsageError>("{}: under '{}' lies the list of pinned images, which would be lost; write another tag",
                     reference.to_string(), *reference.tag);
  return reference;
}

std::shared_ptr<oci::Repository> open_destination(const Context& context, const std::string& source,
                                                  const oci::Reference& destination) {
  if (destination.kind == oci::Reference::Kind::kLayout) return oci::create_layout(destination.layout_dir);
  auto repository = std::make_shared<oci::RegistryRepository>(destination, context.global.registry);
  // Within one registry nothing needs to be sent.
  const auto from = oci::Reference::parse(source);
  if (from.kind == oci::Reference::Kind::kRegistry && from.host == destination.host)
    repository->set_mount_source(from.repository);
  return repository;
}

}  // namespace varve::cli
