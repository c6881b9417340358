#include "core/index/publish_index.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/errors.h"
#include "core/oci/copy_blob.h"

namespace varve::index {
namespace {

constexpr std::string_view kNoTag;

// Everything but the manifests. `source_of` says who has a blob.
template <typename SourceOf>
void copy_index_blobs(const ImageIndexBlobs& index, SourceOf&& source_of, oci::Repository& destination,
                      const CancelFlag& cancel) {
  const auto copy = [&](const std::optional<oci::Descriptor>& blob) {
    cancel.throw_if_cancelled();
    if (!blob) return;
    oci::Repository& source = source_of(*blob);
    if (&source != &destination) oci::copy_blob(source, destination, *blob);
  };
  oci::put_bytes(destination, oci::empty_json(), oci::kEmptyJsonType);
  std::set<Digest> copied;
  for (const auto& layer : index.layers) {
    if (!copied.insert(layer.layer_digest).second) continue;
    copy(layer.map);
    copy(layer.windows);
    copy(layer.entries);
  }
  copy(index.tree);
  copy(index.ranges);
  copy(index.cold);
  copy(index.profile);
  copy(index.start_packs);
  for (const auto& pack : index.packs) copy(pack);
  copy(index.seeds);
}

// The manifests of layers, then the image's: what others look for last.
void put_manifests(const oci::Image& image, const ImageIndexBlobs& index, oci::Repository& destination,
                   const CancelFlag& cancel) {
  std::set<Digest> put;
  for (std::size_t i = 0; i < index.layers.size(); ++i) {
    cancel.throw_if_cancelled();
    auto blobs = index.layers[i];
    if (!put.insert(blobs.layer_digest).second) continue;  // a layer that the image repeats is published once
    if (blobs.tool.empty()) blobs.tool = index.tool;       // known only to the image's index
    destination.put_part_manifest(make_layer_manifest(image.manifest.layers.at(i), blobs).to_json(),
                                  oci::kOciManifestType, image.digest());
  }
  cancel.throw_if_cancelled();
  destination.put_manifest(make_index_manifest(image, index).to_json(), oci::kOciManifestType, kNoTag);
}

Digest digest_or_none(const std::optional<oci::Descriptor>& blob) { return blob ? blob->digest : Digest(); }

bool same_notes(const ImageIndexBlobs& a, const ImageIndexBlobs& b) {
  return digest_or_none(a.cold) == digest_or_none(b.cold) && digest_or_none(a.profile) == digest_or_none(b.profile) &&
         digest_or_none(a.start_packs) == digest_or_none(b.start_packs) &&
         digest_or_none(a.seeds) == digest_or_none(b.seeds);
}

bool same_blobs(const ImageIndexBlobs& a, const ImageIndexBlobs& b) { return same_notes(a, b) && same_content(a, b); }

// Whoever may write to a further repository (index-from) must not have their word carried to where it counts for more.
void refuse_word_of_others(const oci::Image& image, const LoadedIndex& index, oci::Repository& destination) {
  const auto from = index.source->name();
  if (index.judgement.vouched || from == image.repository->name() || from == destination.name()) return;
  throw trust::Untrusted(fmt::format(
      "index {} of image {} came from {}, and nobody who counts here vouches for it, so it is not published "
      "in {}; first run: varve index {}",
      index.blobs.manifest.digest.to_string(), image.digest().to_string(), from, destination.name(), image.typed()));
}

// A further index of the image that differs in what it notes: what is cold, the profile.
ImageIndexBlobs publish_notes(const oci::Image& image, const LoadedIndex& index, ImageIndexBlobs blobs,
                              LocalIndex& local, oci::Repository& destination, const CancelFlag& cancel) {
  refuse_word_of_others(image, index, destination);
  const auto original = blobs.manifest.digest;
  blobs.hint.reset();
  const auto published = find_index(destination, image);
  if (published && same_blobs(blobs, *published)) return *published;
  blobs.generation = std::max(blobs.generation, published ? published->generation : 0) + 1;
  if (blobs.generation > kMaxGeneration)
    fail<Unsupported>(
        "{}: index {} of image {} has the highest generation there is, so no other can take its place; remove it there",
        destination.name(), published ? published->manifest.digest.to_string() : original.to_string(),
        image.digest().to_string());
  // Entries and windows may never have been fetched to this machine; most often the destination has all but the notes
  // already.
  const auto source_of = [&](const oci::Descriptor& blob) -> oci::Repository& {
    if (destination.has_blob(blob)) return destination;
    return local.repository().has_blob(blob) ? local.repository() : *index.source;
  };
  copy_index_blobs(blobs, source_of, destination, cancel);
  if (published) {
    destination.put_manifest(make_index_manifest(image, blobs).to_json(), oci::kOciManifestType, kNoTag);
  } else {
    put_manifests(image, blobs, destination, cancel);
  }
  auto preferred = find_index(destination, image);
  if (!preferred || !same_notes(blobs, *preferred))
    fail<TemporaryError>("{}: another index of image {} was published meanwhile; try again", destination.name(),
                         image.digest().to_string());
  oci::put_bytes(local.repository(), oci::empty_json(), oci::kEmptyJsonType);
  const auto kept =
      local.repository().put_manifest(make_index_manifest(image, blobs).to_json(), oci::kOciManifestType, kNoTag);
  local.origins().note_derived(kept.digest, original);
  local.origins().note_repository(kept.digest, destination.name());
  return *preferred;
}

}  // namespace

void publish_index(const oci::Image& image, const ImageIndexBlobs& index, oci::Repository& source,
                   oci::Repository& destination, const CancelFlag& cancel) {
  copy_index_blobs(
      index, [&](const oci::Descriptor&) -> oci::Repository& { return source; }, destination, cancel);
  put_manifests(image, index, destination, cancel);
}

ImageIndexBlobs publish_cold(const oci::Image& image, const LoadedIndex& index, const ColdRanges& cold,
                             LocalIndex& local, oci::Repository& destination, const CancelFlag& cancel) {
  cold.check(index.maps, "cold ranges of image " + image.digest().to_string());
  auto blobs = index.blobs;
  blobs.cold.reset();
  if (!cold.empty()) blobs.cold = oci::put_bytes(local.repository(), cold.encode(), kColdMediaType);
  return publish_notes(image, index, std::move(blobs), local, destination, cancel);
}

ImageIndexBlobs publish_profile(const oci::Image& image, const LoadedIndex& index, const Profile& profile,
                                LocalIndex& local, oci::Repository& destination, const CancelFlag& cancel) {
  profile.check(index.maps, "profile of image " + image.digest().to_string());
  auto blobs = index.blobs;
  blobs.profile.reset();
  if (!profile.ranges.empty()) blobs.profile = oci::put_bytes(local.repository(), profile.encode(), kProfileMediaType);
  return publish_notes(image, index, std::move(blobs), local, destination, cancel);
}

ImageIndexBlobs publish_packs(const oci::Image& image, const LoadedIndex& index, const StartPacks& packs,
                              LocalIndex& local, oci::Repository& destination, const CancelFlag& cancel) {
  packs.check(index.maps, "start-up packs of image " + image.digest().to_string());
  auto blobs = index.blobs;
  blobs.start_packs.reset();
  blobs.packs.clear();
  if (!packs.empty()) {
    blobs.start_packs = oci::put_bytes(local.repository(), pack_start_packs(packs), kStartPacksMediaType);
    std::map<Digest, oci::Descriptor> named;
    for (const auto& group : packs.groups) named.emplace(group.pack.blob, group.pack.descriptor());
    for (const auto& [digest, blob] : named) blobs.packs.push_back(blob);
  }
  return publish_notes(image, index, std::move(blobs), local, destination, cancel);
}

ImageIndexBlobs publish_without_starts(const oci::Image& image, const LoadedIndex& index, LocalIndex& local,
                                       oci::Repository& destination, const CancelFlag& cancel) {
  auto blobs = index.blobs;
  blobs.profile.reset();
  blobs.start_packs.reset();
  blobs.packs.clear();
  return publish_notes(image, index, std::move(blobs), local, destination, cancel);
}

}  // namespace varve::index
