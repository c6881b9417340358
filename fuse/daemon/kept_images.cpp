#include "fuse/daemon/kept_images.h"

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/oci/platform.h"
#include "core/oci/reference.h"

namespace varve::fuse {
namespace {

// What a reference names, where that cannot be opened.
class AbsentRepository final : public oci::Repository {
 public:
  explicit AbsentRepository(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  oci::Document manifest(std::string_view) override { refuse(); }
  void read_blob(const oci::Descriptor&, ByteRange, const oci::ByteSink&) override { refuse(); }
  bool has_blob(const oci::Descriptor&) override { return false; }
  void put_blob(const oci::Descriptor&, const oci::ByteSource&) override { refuse(); }
  oci::Descriptor put_manifest(ByteView, std::string_view, std::string_view) override { refuse(); }
  std::vector<oci::Descriptor> referrers(const Digest&, std::string_view) override { return {}; }

 private:
  [[noreturn]] void refuse() const { fail<NotFound>("{}: it could not be opened", name_); }
  const std::string name_;
};

std::string tag_of(const ImageSpec& spec) {
  return "opened-" + digest_of(as_bytes(spec.reference + '\n' + spec.platform)).hex();
}

oci::Image open_kept(const std::shared_ptr<index::LocalIndex>& local, const ImageSpec& spec,
                     const std::string& selector) {
  auto image = oci::open_image({local, &local->repository()}, selector, oci::Platform::of_this_machine());
  const auto reference = oci::Reference::parse(spec.reference);
  image.selector = reference.selector();
  image.reference = spec.reference;
  image.registry = spec.registry;
  try {
    image.repository = oci::open_repository(reference, spec.registry);
  } catch (const std::exception& error) {
    log::warn("{}: {}; only what is in the store can be read", spec.reference, error.what());
    image.repository = std::make_shared<AbsentRepository>(reference.repository_name());
  }
  return image;
}

// Absent where it is not, or damaged.
std::optional<Digest> listed(oci::Repository& repository, const std::string& tag) {
  try {
    return repository.manifest(tag).descriptor.digest;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void keep_image(index::LocalIndex& local, const ImageSpec& spec, const oci::Image& image) {
  try {
    auto& repository = local.repository();
    const auto& document = image.document;
    if (!repository.has_blob(image.manifest.config))
      oci::put_bytes(repository, image.manifest.config, image.config_json);
    if (!repository.has_blob(document.descriptor)) oci::put_bytes(repository, document.descriptor, document.bytes);
    // Whether it is listed is asked then: what was opened by that name before may be waiting, too.
    local.list_later(image.digest(), [tag = tag_of(spec), document](oci::Repository& here) {
      if (listed(here, tag) != document.descriptor.digest)
        here.put_manifest(document.bytes, document.descriptor.media_type, tag);
    });
  } catch (const std::exception& error) {
    log::warn("what {} means is not kept for when its registry is away: {}", spec.reference, error.what());
  }
}

oci::Image open_kept_image(const std::shared_ptr<index::LocalIndex>& local, const ImageSpec& spec,
                           const Digest& manifest) {
  return open_kept(local, spec, manifest.to_string());
}

std::optional<oci::Image> find_image_kept_by_digest(const std::shared_ptr<index::LocalIndex>& local,
                                                    const ImageSpec& spec) {
  const auto reference = oci::Reference::parse(spec.reference);
  if (reference.kind != oci::Reference::Kind::kRegistry || !reference.digest) return std::nullopt;
  try {
    auto image = open_kept(local, spec, reference.digest->to_string());
    if (image.digest() != *reference.digest || !spec.platform.empty()) return std::nullopt;
    return image;
  } catch (const Error&) {  // it is not here, or not whole
    return std::nullopt;
  }
}

bool was_opened(index::LocalIndex& local, const ImageSpec& spec) {
  return listed(local.repository(), tag_of(spec)).has_value();
}

std::optional<oci::Image> find_kept_image(const std::shared_ptr<index::LocalIndex>& local, const ImageSpec& spec) {
  local->wait_until_listed();
  try {
    return open_kept(local, spec, tag_of(spec));
  } catch (const NotFound&) {
    return std::nullopt;
  } catch (const std::exception& error) {
    log::warn("what {} meant when it was last opened cannot be read: {}", spec.reference, error.what());
    return std::nullopt;
  }
}

}  // namespace varve::fuse
