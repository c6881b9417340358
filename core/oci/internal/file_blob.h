#pragma once
// Blobs that lie in files of this machine.
#include <string>

#include "core/oci/repository.h"

namespace varve::oci::internal {

// Hands out a range of a blob that begins at `begin` in the file. The whole blob is checked against its digest on the
// way, as Repository::read_blob() promises. `what` names it in messages.
void read_file_blob(int fd, std::uint64_t begin, const Descriptor& blob, ByteRange range, const ByteSink& sink,
                    const std::string& what);

}  // namespace varve::oci::internal
