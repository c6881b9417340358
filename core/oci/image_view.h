#pragma once
// Images in the forms that other tools write for one image, read where they lie: docker-archive:FILE, as `docker save`
// writes it, and dir:DIR, as `skopeo copy` does. Nothing is unpacked or copied, and nothing is put there.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/files/unique_fd.h"
#include "core/oci/repository.h"

namespace varve::oci {

// Manifests with their names, and where each blob lies. Safe to use from any thread: nothing of it changes.
class ImageView final : public Repository {
 public:
  struct Named {
    std::vector<std::string> names;  // "docker.io/library/app:v1"; none in a folder
    Document document;
    bool is_image = true;  // false: found by its digest alone, as those that a list names
  };
  struct Piece {
    std::filesystem::path file;  // "" = in the archive
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };
  // `archive` stays open, so that a file that takes its place changes nothing for whoever reads.
  ImageView(std::string name, std::vector<Named> documents, std::map<Digest, Piece> blobs, UniqueFd archive);

  std::string name() const override { return name_; }
  bool is_local() const override { return true; }
  Document manifest(std::string_view selector) override;
  void read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) override;
  bool is_read_only() const override { return true; }
  bool has_blob(const Descriptor& blob) override;
  void put_blob(const Descriptor& blob, const ByteSource& content) override;                           // Unsupported
  Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view tag) override;  // Unsupported
  std::vector<Descriptor> referrers(const Digest&, std::string_view) override { return {}; }

 private:
  [[noreturn]] void refuse_writing() const;

  const std::string name_;
  const std::vector<Named> documents_;
  const std::map<Digest, Piece> blobs_;
  const UniqueFd archive_;
};

// The manifest is made here, as the archive has none: of the config's digest, and of the layers, which lie there as
// plain tars under their diff_ids. Throws NotFound, CorruptData, or Unsupported for layers in another form.
std::shared_ptr<Repository> open_docker_archive(const std::filesystem::path& file);
// Throws NotFound naming what is missing.
std::shared_ptr<Repository> open_image_folder(const std::filesystem::path& dir);

}  // namespace varve::oci
