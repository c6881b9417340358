#pragma once
// What of an image's layers an earlier version of it has in layers of its own: the seeds that its index names
// (core/index/format/seeds.h).
#include "core/base/work.h"
#include "core/index/format/seeds.h"
#include "core/index/local_index.h"
#include "core/oci/image.h"

namespace varve::indexer {

// The index of an image that another grew out of. Throws what index::choose_index() does, and trust::Untrusted for an
// index that nobody vouches for: what it says of its contents would become the word of whoever names it.
index::ChosenIndex choose_earlier(const oci::Image& image, index::LocalIndex& local);

// How it works: contents that have the same digest in both entries are equal. Of those that follow each other in both
// the place is taken that goes on with the one before, so that the list is short. Compiled Python that differs by the
// time of its source alone has another digest: the new file is read, given the old time, and digested.
//
// Of `index` maps and blobs count, and its source. Reads those of the image's new layers that hold compiled Python
// which the earlier version has by path and size, in part. Deterministic. Throws CorruptData, and what reading throws.
index::Seeds find_seeds(const oci::Image& image, const index::LoadedIndex& index, const index::ChosenIndex& earlier,
                        index::LocalIndex& local, const Work& work);

}  // namespace varve::indexer
