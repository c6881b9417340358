#pragma once
// From one repository to another.
#include <cstdint>
#include <functional>

#include "core/oci/repository.h"

namespace varve::oci {

// Copies a blob unless the destination has it, or can take it from where it is (Repository::put_blob). Between layout
// folders of one file system it becomes a hard link, after its bytes were checked. `on_bytes`, if given, hears of each
// piece that was read, and may throw to stop. Returns false if nothing was read from the source. Throws as read_blob
// and put_blob do.
bool copy_blob(Repository& source, Repository& destination, const Descriptor& blob,
               const std::function<void(std::uint64_t bytes)>& on_bytes = {});

}  // namespace varve::oci
