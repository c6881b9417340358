#pragma once
// Start-up packs of one version of an image for the next: where all files of a pack are the same, so is its blob, only
// its places are others.
#include <vector>

#include "core/index/format/start_packs.h"
#include "core/index/opened_image.h"
#include "indexer/packs/file_places.h"
#include "indexer/packs/pack_writer.h"

namespace varve::indexer {

// Those of `groups` (layers by place in the image before) whose files have the same paths and contents after, with the
// places that they have there. Compiled Python of the same size may be the same but for times: whether it is, and what
// lies in the padding behind files, only the bytes say, so `writer` (of the image after) reads them all.
std::vector<index::StartGroup> carry_groups(const std::vector<index::StartGroup>& groups, const FilePlaces& before,
                                            const FilePlaces& after, PackWriter& writer, const Work& work);

// The same of all groups of an image; their blobs are then in the local root of `to`. None if
// nobody vouches for the index of `from`: the bytes are compared, but what a blob decodes to is the word of who made
// it. `places` and `writer`: of `to`. Throws as reading does.
std::vector<index::StartGroup> carry_from(const index::OpenedImage& from, const index::OpenedImage& to,
                                          const FilePlaces& places, PackWriter& writer, const Work& work);

// Publishes all that can be carried with the index of `to`, an image that has none, in its repository. Does nothing if
// there are none. `scratch_dir`, `jobs`: as PackWriter has them.
void publish_carried(const index::OpenedImage& from, const index::OpenedImage& to,
                     const std::filesystem::path& scratch_dir, unsigned jobs, const Work& work);

}  // namespace varve::indexer
