#pragma once
// Start-up packs of one version of an image for the next: where all files of a pack are the same, so is its blob, only
// its places are others.
#include <vector>

#include "core/index/format/start_packs.h"
#include "indexer/packs/file_places.h"
#include "indexer/packs/pack_writer.h"

namespace varve::indexer {

// Those of `groups` (layers by place in the image before) whose files have the same paths and contents after, with the
// places that they have there. Compiled Python of the same size may be the same but for times: whether it is, and what
// lies in the padding behind files, only the bytes say, so `writer` (of the image after) reads them all.
std::vector<index::StartGroup> carry_groups(const std::vector<index::StartGroup>& groups, const FilePlaces& before,
                                            const FilePlaces& after, PackWriter& writer, const Work& work);

}  // namespace varve::indexer
