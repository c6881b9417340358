#pragma once
// Puts the index of an image where it will be found. Which artifacts that makes: docs/formats/index.md.
#include "core/base/threads/cancel.h"
#include "core/index/format/cold_ranges.h"
#include "core/index/format/image_index.h"
#include "core/index/local_index.h"
#include "core/oci/image.h"

namespace varve::index {

// Copies the index's blobs from `source` and puts the artifacts that name them: blobs before the manifests that name
// them, and what others look for last, so that a reader finds a whole index or none. Source and destination may be one.
void publish_index(const oci::Image& image, const ImageIndexBlobs& index, oci::Repository& source,
                   oci::Repository& destination, const CancelFlag& cancel);

// Publishes a new index of the same image that differs only in what is cold: its tree, maps, windows and entries are
// those of `index`, not one of them written again. Empty ranges take the marks away. Also kept here, so that mounts of
// this machine know at once. Returns the index that is now preferred: the old one if it marks just that already. Load
// `index` with IndexPlace::kRepository. Throws TemporaryError if another process publishes at the same time and wins;
// nothing is lost then, and it may be tried again.
ImageIndexBlobs publish_cold(const oci::Image& image, const LoadedIndex& index, const ColdRanges& cold,
                             LocalIndex& local, oci::Repository& destination, const CancelFlag& cancel);
// The same for what is known of start-ups. A profile without ranges takes it away. It must be of this image's layers:
// Profile::of_layers().
ImageIndexBlobs publish_profile(const oci::Image& image, const LoadedIndex& index, const Profile& profile,
                                LocalIndex& local, oci::Repository& destination, const CancelFlag& cancel);
// The same for start-up packs, whose blobs are in `local` already; without groups: none any more.
ImageIndexBlobs publish_packs(const oci::Image& image, const LoadedIndex& index, const StartPacks& packs,
                              LocalIndex& local, oci::Repository& destination, const CancelFlag& cancel);

// Takes away all that is known of starts: the profile, and start-up packs.
ImageIndexBlobs publish_without_starts(const oci::Image& image, const LoadedIndex& index, LocalIndex& local,
                                       oci::Repository& destination, const CancelFlag& cancel);

}  // namespace varve::index
