#include "cli/base/destination.h"

#include "core/base/errors.h"
#include "core/oci/layout.h"
#include "core/oci/registry_repository.h"
#include "indexer/known_pins.h"
#include "indexer/pins.h"

namespace varve::cli {

void refuse_own_tag(const oci::Reference& reference) {
  if (!reference.tag) return;
  if (const auto use = oci::use_of_tag(*reference.tag); !use.empty())
    fail<UsageError>("{}: under '{}' lies {}, which would be lost; write another tag", reference.to_string(),
                     *reference.tag, use);
}

oci::Reference parse_destination(const std::string& destination) {
  auto reference = oci::Reference::parse(destination);
  if (reference.digest)
    fail<UsageError>("{}: write a tag, or nothing: the digest follows from the image", reference.to_string());
  refuse_own_tag(reference);
  return reference;
}

namespace {

// Whoever moves a tag leaves the image that had it to the list of pins: it must be known to name all that was promised.
void check_tag_may_move(const Context& context, oci::Repository& repository, const oci::Reference& destination) {
  if (!destination.tag) return;
  try {
    repository.manifest(*destination.tag);
  } catch (const NotFound&) {
    return;
  } catch (const CorruptData&) {
    // The tag is there, and what it names may be brought back.
  }
  const indexer::KnownPins known(context.global.root);
  indexer::read_whole_list(repository, known.pins_of(indexer::place_of(destination)),
                           fmt::format("tag '{}' was left as it is", *destination.tag));
}

}  // namespace

std::shared_ptr<oci::Repository> open_destination(const Context& context, const std::string& source,
                                                  const oci::Reference& destination) {
  if (destination.kind == oci::Reference::Kind::kLayout) {
    auto layout = oci::create_layout(destination.layout_dir);
    check_tag_may_move(context, *layout, destination);
    return layout;
  }
  auto repository = std::make_shared<oci::RegistryRepository>(destination, context.global.registry);
  // Within one registry nothing needs to be sent.
  const auto from = oci::Reference::parse(source);
  if (from.kind == oci::Reference::Kind::kRegistry && from.host == destination.host)
    repository->set_mount_source(from.repository);
  check_tag_may_move(context, *repository, destination);
  return repository;
}

}  // namespace varve::cli
