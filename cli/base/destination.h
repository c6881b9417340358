#pragma once
// Where commands put images and indexes.
#include <memory>
#include <string>

#include "cli/command.h"
#include "core/oci/repository.h"

namespace varve::cli {

// Throws UsageError for a tag under which no image may lie: that of the list of pins, those of indexes and signatures.
void refuse_own_tag(const oci::Reference& reference);

// Throws UsageError for a destination with a digest, which follows from what is put there, and what refuse_own_tag()
// throws.
oci::Reference parse_destination(const std::string& destination);

// A layout folder is made where there is none. Within the registry of `source` (a reference as the user wrote it) blobs
// are mounted from there, not sent. Throws CorruptData if the destination's tag would move and the list of pins there
// is none, or lacks what this machine knows of.
std::shared_ptr<oci::Repository> open_destination(const Context& context, const std::string& source,
                                                  const oci::Reference& destination);

}  // namespace varve::cli
