#include "indexer/export_image.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/base/errors.h"
#include "core/base/threads/parallel.h"
#include "core/index/publish_index.h"
#include "core/oci/copy_blob.h"
#include "core/trust/sign.h"

namespace varve::indexer {
namespace {

class BlobCopier {
 public:
  BlobCopier(oci::Repository& source, oci::Repository& destination, const Work& work)
      : source_(source), destination_(destination), work_(work) {}

  void copy(const std::map<Digest, oci::Descriptor>& blobs, std::size_t jobs) {
    std::vector<const oci::Descriptor*> wanted;
    for (const auto& [digest, blob] : blobs) {
      wanted.push_back(&blob);
      work_.progress.expect(blob.size);
    }
    // The largest first, so that no long one is left for the end.
    std::ranges::stable_sort(wanted, std::ranges::greater(), [](const oci::Descriptor* blob) { return blob->size; });
    parallel_for(wanted.size(), jobs, work_.cancel,
                 [&](std::size_t i, const CancelFlag& stop) { copy_one(*wanted[i], stop); });
  }

  std::uint64_t copied_bytes() const { return copied_bytes_; }
  std::uint64_t reused_bytes() const { return reused_bytes_; }

 private:
  void copy_one(const oci::Descriptor& blob, const CancelFlag& stop) {
    const Work work{work_.progress, stop};
    // A registry may have it in another repository and take it from there: then nothing is asked of the source.
    const bool sent = oci::copy_blob(source_, destination_, blob, [&](std::uint64_t bytes) { work.add(bytes); });
    if (!sent) work_.progress.add(blob.size);
    (sent ? copied_bytes_ : reused_bytes_) += blob.size;
  }

  oci::Repository& source_;
  oci::Repository& destination_;
  const Work work_;
  std::atomic<std::uint64_t> copied_bytes_ = 0;
  std::atomic<std::uint64_t> reused_bytes_ = 0;
};

std::map<Digest, oci::Descriptor> blobs_of(const oci::Image& image) {
  std::map<Digest, oci::Descriptor> blobs{{image.manifest.config.digest, image.manifest.config}};
  for (const auto& layer : image.manifest.layers) blobs.emplace(layer.digest, layer);
  return blobs;
}

}  // namespace

ExportReport export_image(const oci::Image& image, oci::Repository& destination, std::string_view tag,
                          const ExportOptions& options, const Work& work) {
  std::optional<index::ImageIndexBlobs> index;
  if (options.with_index) {
    index = index::find_index(*image.repository, image);
    if (!index)
      fail<NotFound>("{}: it has no index to go along: make one with `varve index`, or leave out --with-index",
                     image.repository->name());
  }
  BlobCopier copier(*image.repository, destination, work);
  copier.copy(blobs_of(image), options.jobs);
  work.cancel.throw_if_cancelled();
  destination.put_manifest(image.document.bytes, image.document.descriptor.media_type, tag);
  if (index) {
    index::publish_index(image, *index, *image.repository, destination, work.cancel);
    // What vouches for it goes along: a copy is believed where its keys are.
    trust::copy_signatures(*image.repository, destination, index->manifest);
    trust::copy_signatures(*image.repository, destination, image.document.descriptor);
  }
  return {.image = image.digest(), .copied_bytes = copier.copied_bytes(), .reused_bytes = copier.reused_bytes()};
}

}  // namespace varve::indexer
