#pragma once
// An OCI layout folder as a repository (image-spec image-layout.md).
#include <filesystem>
#include <memory>

#include "core/oci/repository.h"

namespace varve::oci {

// Several processes may write at once: index.json is replaced whole, under a lock of the folder.
class LayoutRepository final : public Repository {
 public:
  // Throws NotFound naming what is missing, Unsupported for another layout version.
  explicit LayoutRepository(std::filesystem::path dir);
  // Makes the folder and an empty layout where there is none.
  static std::shared_ptr<LayoutRepository> create(const std::filesystem::path& dir);

  std::string name() const override { return "oci:" + dir_.string(); }
  Document manifest(std::string_view selector) override;
  void read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) override;
  bool has_blob(const Descriptor& blob) override;
  void put_blob(const Descriptor& blob, const ByteSource& content) override;
  Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view tag) override;
  std::vector<Descriptor> referrers(const Digest& subject, std::string_view artifact_type) override;

 private:
  std::filesystem::path blob_path(const Digest& digest) const;
  Bytes read_index_json() const;
  Document read_document(Descriptor descriptor);
  Descriptor find_tag(std::string_view tag);
  Descriptor only_image();
  bool is_image(const Descriptor& entry);

  std::filesystem::path dir_;
};

}  // namespace varve::oci
