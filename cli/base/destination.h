#pragma once
// Where commands put images and indexes.
#include <memory>
#include <string>

#include "cli/command.h"
#include "core/oci/repository.h"

namespace varve::cli {

// Throws UsageError for a destination with a digest, which follows from what is put there, and for the tag of the list
// of pins.
oci::Reference parse_destination(const std::string& destination);

// A layout folder is made where there is none. Within the registry of `source` (a reference as the user wrote it) blobs
// are mounted from there, not sent.
std::shared_ptr<oci::Repository> open_destination(const Context& context, const std::string& source,
                                                  const oci::Reference& destination);

}  // namespace varve::cli
