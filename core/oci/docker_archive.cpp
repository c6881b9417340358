// docker-archive: a tar with manifest.json, which names configs, layers and names of images (the form of `docker save`,
// `podman save` and `skopeo copy`; docs/formats of moby, image/spec).
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"
#include "core/codec/sniff.h"
#include "core/codec/tar_members.h"
#include "core/oci/image_view.h"
#include "core/oci/internal/archive_name.h"
#include "core/oci/internal/descriptor_json.h"
#include "core/oci/manifest.h"

namespace varve::oci {
namespace {

using nlohmann::json;

constexpr std::string_view kConfigType = "application/vnd.oci.image.config.v1+json";
constexpr std::string_view kTarLayerType = "application/vnd.oci.image.layer.v1.tar";
constexpr std::string_view kBlobsFolder = "blobs/sha256/";  // where Docker 25 and later keeps layers

class ArchiveReader {
 public:
  explicit ArchiveReader(const std::filesystem::path& file)
      : name_("docker-archive:" + file.string()), fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!fd_ && errno == ENOENT) fail<NotFound>("{}: there is no such file", name_);
    if (!fd_) fail_errno("open {}", name_);
    const auto bytes = file_size(fd_.get(), file);
    refuse_compressed(bytes);
    members_ = codec::find_tar_members(
        bytes, [&](std::uint64_t offset, std::span<std::byte> into) { pread_exactly(fd_.get(), offset, into, name_); },
        name_);
  }

  std::shared_ptr<Repository> open() && {
    if (!members_.contains("manifest.json")) {
      const auto* advice = members_.contains("oci-layout") ? ": unpack it and write oci:DIR" : "";
      fail<NotFound>("{}: no docker-archive: manifest.json is missing in it{}", name_, advice);
    }
    const auto list = JsonValue::parse(read("manifest.json", kMaxManifestBytes), name_ + " manifest.json",
                                       {.bytes = kMaxManifestBytes});
    for (const auto& entry : list.items()) add_image(entry);
    return std::make_shared<ImageView>(name_, std::move(images_), std::move(blobs_), std::move(fd_));
  }

 private:
  void refuse_compressed(std::uint64_t bytes) const {
    Bytes first(std::min<std::uint64_t>(bytes, codec::kSniffBytes));
    pread_exactly(fd_.get(), 0, first, name_);
    const auto container = codec::sniff(first);
    if (container == codec::Container::kGzip || container == codec::Container::kZstd)
      fail<Unsupported>("{}: it is compressed as a whole, so nothing in it can be read in place: unpack it with {} -d",
                        name_, container == codec::Container::kGzip ? "gzip" : "zstd");
  }

  const codec::TarMember& member(const std::string& path) const {
    const auto found = members_.find(path);
    if (found == members_.end())
      fail<CorruptData>("{}: its manifest.json names {:.200}, which is missing", name_, path);
    return found->second;
  }

  Bytes read(const std::string& path, std::uint64_t limit) const {
    const auto& file = member(path);
    if (file.size > limit)
      fail<Unsupported>("{}: {:.200} has {} bytes, the limit is {}", name_, path, file.size, limit);
    Bytes bytes(file.size);
    pread_exactly(fd_.get(), file.offset, bytes, name_);
    return bytes;
  }

  Descriptor add_blob(const std::string& path, const Digest& digest, std::string_view media_type) {
    const auto& file = member(path);
    blobs_[digest] = {.file = {}, .offset = file.offset, .size = file.size};
    Descriptor blob;
    blob.media_type = media_type;
    blob.digest = digest;
    blob.size = file.size;
    return blob;
  }

  Descriptor add_layer(const std::string& path, const Digest& diff_id) {
    const auto& file = member(path);
    Bytes first(std::min<std::uint64_t>(file.size, codec::kSniffBytes));
    pread_exactly(fd_.get(), file.offset, first, name_);
    const auto container = codec::sniff(first);
    if (container != codec::Container::kGzip && container != codec::Container::kZstd)
      return add_blob(path, diff_id, kTarLayerType);
    // What a compressed layer's digest is, only its name can say.
    const auto digest =
        path.starts_with(kBlobsFolder) ? Digest::try_parse("sha256:" + path.substr(kBlobsFolder.size())) : std::nullopt;
    if (!digest)
      fail<Unsupported>(
          "{}: the layer {:.200} is compressed, and nothing says its digest; write the archive anew with "
          "skopeo, or copy the image to oci:DIR:TAG",
          name_, path);
    return add_blob(path, *digest,
                    std::string(kTarLayerType) + (container == codec::Container::kGzip ? "+gzip" : "+zstd"));
  }

  void add_image(const JsonValue& entry) {
    const auto config_path = entry["Config"].text();
    const auto config_json = read(config_path, kMaxConfigBytes);
    const auto config = ImageConfig::parse(config_json, name_ + " " + config_path);
    const auto paths = entry["Layers"].items();
    if (paths.size() > kMaxLayers || paths.size() != config.diff_ids.size())
      fail<CorruptData>("{}: {} layers, but the config {:.200} names {} diff_ids", name_, paths.size(), config_path,
                        config.diff_ids.size());
    const auto config_blob = add_blob(config_path, digest_of(config_json), kConfigType);
    json manifest = {{"schemaVersion", 2},
                     {"mediaType", kOciManifestType},
                     {"config", internal::descriptor_to_json(config_blob)},
                     {"layers", json::array()}};
    for (std::size_t i = 0; i < paths.size(); ++i)
      manifest["layers"].push_back(internal::descriptor_to_json(add_layer(paths[i].text(), config.diff_ids[i])));
    ImageView::Named image;
    image.document.bytes = to_bytes(as_bytes(manifest.dump()));
    image.document.descriptor = descriptor_of(image.document.bytes, kOciManifestType);
    for (const auto& tag : entry.maybe("RepoTags").items()) {
      try {
        image.names.push_back(internal::archive_name(tag.text()));
      } catch (const UsageError& error) {
        log::debug("{}: passing over a name: {}", name_, error.what());
      }
    }
    images_.push_back(std::move(image));
  }

  const std::string name_;
  UniqueFd fd_;
  std::map<std::string, codec::TarMember> members_;
  std::vector<ImageView::Named> images_;
  std::map<Digest, ImageView::Piece> blobs_;
};

}  // namespace

std::shared_ptr<Repository> open_docker_archive(const std::filesystem::path& file) {
  ArchiveReader reader(file);
  return std::move(reader).open();
}

}  // namespace varve::oci
