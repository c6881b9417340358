#pragma once
// Manifest and config of each image that was opened here, kept beside the indexes in ROOT/index, an OCI layout: by its
// digest a daemon goes on with what an earlier one has mounted, and by a tag that is made of the reference a session on
// an image that is here starts also while its registry is away.
#include <memory>
#include <optional>

#include "core/index/local_index.h"
#include "core/oci/image.h"
#include "fuse/control/control_messages.h"

namespace varve::fuse {

// What the reference means now: by its digest it is found at once, by the reference once it is listed
// (LocalIndex::list_later()), for which find_kept_image() waits. Nothing depends on it until the registry is away or
// the daemon has died: failures are logged.
void keep_image(index::LocalIndex& local, const ImageSpec& spec, const oci::Image& image);

// The image as it was kept: its reference is not resolved again, as the tag may have moved and the registry may be
// away. Its layers are read from where the reference points; if that cannot be opened at all, what is in the store can
// still be read. Throws NotFound or CorruptData.
oci::Image open_kept_image(const std::shared_ptr<index::LocalIndex>& local, const ImageSpec& spec,
                           const Digest& manifest);
// The image that the reference names by its digest, if it is here with its config. Absent also where a platform is
// asked for, as the digest may be that of a list.
std::optional<oci::Image> find_image_kept_by_digest(const std::shared_ptr<index::LocalIndex>& local,
                                                    const ImageSpec& spec);
// Whether the reference was opened here before; what is not listed yet does not count.
bool was_opened(index::LocalIndex& local, const ImageSpec& spec);
// What the reference meant when it was last opened here. Absent where it never was, or what was kept is damaged, which
// is logged.
std::optional<oci::Image> find_kept_image(const std::shared_ptr<index::LocalIndex>& local, const ImageSpec& spec);

}  // namespace varve::fuse
