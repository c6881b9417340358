#include "fuse/daemon/remembered_image.h"

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/oci/reference.h"

namespace varve::fuse {
namespace {

// One manifest and its config, from memory.
class RememberedRepository final : public oci::Repository {
 public:
  explicit RememberedRepository(const HandoverImage& image)
      : config_(image.config),
        reference_(image.spec.reference),
        name_(oci::Reference::parse(reference_).repository_name()) {
    document_.descriptor.media_type = image.media_type;
    document_.descriptor.digest = digest_of(image.manifest);
    document_.descriptor.size = image.manifest.size();
    document_.bytes = image.manifest;
    if (document_.descriptor.digest != image.digest)
      fail<CorruptData>("handover: the manifest of {} is another one", image.digest.to_string());
  }

  std::string name() const override { return name_; }
  oci::Document manifest(std::string_view selector) override {
    if (selector != document_.descriptor.digest.to_string())
      fail<NotFound>("{}: {} cannot be asked for now", reference_, selector);
    return document_;
  }
  void read_blob(const oci::Descriptor& blob, ByteRange range, const oci::ByteSink& sink) override {
    if (blob.digest != digest_of(config_) || !range.fits_in(config_.size()))
      fail<NotFound>("{}: blob {} cannot be asked for now", reference_, blob.digest.to_string());
    sink(ByteView(config_).subspan(range.offset, range.length));
  }
  bool has_blob(const oci::Descriptor& blob) override { return blob.digest == digest_of(config_); }
  void put_blob(const oci::Descriptor& blob, const oci::ByteSource&) override {
    fail<Unsupported>("{}: {} cannot be put there", reference_, blob.digest.to_string());
  }
  oci::Descriptor put_manifest(ByteView, std::string_view, std::string_view) override {
    fail<Unsupported>("{}: nothing can be put there", reference_);
  }
  std::vector<oci::Descriptor> referrers(const Digest&, std::string_view) override { return {}; }

 private:
  const Bytes config_;
  const std::string reference_;
  const std::string name_;
  oci::Document document_;
};

}  // namespace

HandoverImage to_handover(const ServedImage& image) {
  return {.digest = image.digest(),
          .spec = image.spec(),
          .media_type = image.image().document.descriptor.media_type,
          .manifest = image.image().document.bytes,
          .config = image.image().config_json,
          .index = image.index().blobs.manifest.digest};
}

oci::Image open_remembered(const HandoverImage& remembered) {
  auto image = oci::open_image(std::make_shared<RememberedRepository>(remembered), remembered.digest.to_string(),
                               oci::Platform::of_this_machine());
  const auto reference = oci::Reference::parse(remembered.spec.reference);
  image.selector = reference.selector();
  try {
    image.repository = oci::open_repository(reference, remembered.spec.registry);
  } catch (const std::exception& error) {
    log::warn("{}: {}; only what is in the store can be read", remembered.spec.reference, error.what());
  }
  return image;
}

}  // namespace varve::fuse
