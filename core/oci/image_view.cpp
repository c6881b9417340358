#include "core/oci/image_view.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/strings.h"
#include "core/oci/internal/descriptor_json.h"
#include "core/oci/internal/file_blob.h"
#include "core/oci/manifest.h"

namespace varve::oci {

ImageView::ImageView(std::string name, std::vector<Named> documents, std::map<Digest, Piece> blobs, UniqueFd archive)
    : name_(std::move(name)),
      documents_(std::move(documents)),
      blobs_(std::move(blobs)),
      archive_(std::move(archive)) {}

Document ImageView::manifest(std::string_view selector) {
  std::vector<std::string> names;
  const Named* only = nullptr;
  std::size_t images = 0;
  const auto digest = Digest::try_parse(selector);
  for (const auto& one : documents_) {
    if (digest && one.document.descriptor.digest == *digest) return one.document;
    if (std::ranges::find(one.names, selector) != one.names.end()) return one.document;
    if (!one.is_image) continue;
    only = &one;
    ++images;
    names.insert(names.end(), one.names.begin(), one.names.end());
  }
  const auto known = names.empty() ? std::string("none has a name") : "there are: " + joined(names);
  if (!selector.empty()) fail<NotFound>("{}: no image '{:.200}' in it; {}", name_, selector, known);
  if (images == 0) fail<NotFound>("{}: there is no image in it", name_);
  if (images > 1) fail<NotFound>("{}: it holds {} images; {}", name_, images, known);
  return only->document;
}

void ImageView::read_blob(const Descriptor& blob, ByteRange range, const ByteSink& sink) {
  const auto what = name_ + " " + blob.digest.to_string();
  const auto found = blobs_.find(blob.digest);
  if (found == blobs_.end()) fail<NotFound>("{}: no such blob", what);
  const auto& piece = found->second;
  if (piece.size != blob.size) fail<CorruptData>("{}: {} bytes, but the manifest says {}", what, piece.size, blob.size);
  if (piece.file.empty()) return internal::read_file_blob(archive_.get(), piece.offset, blob, range, sink, what);
  const auto file = open_file(piece.file, O_RDONLY);
  internal::read_file_blob(file.get(), piece.offset, blob, range, sink, what);
}

bool ImageView::has_blob(const Descriptor& blob) {
  const auto found = blobs_.find(blob.digest);
  return found != blobs_.end() && found->second.size == blob.size;
}

void ImageView::put_blob(const Descriptor&, const ByteSource&) { refuse_writing(); }
Descriptor ImageView::put_manifest(ByteView, std::string_view, std::string_view) { refuse_writing(); }

void ImageView::refuse_writing() const {
  fail<Unsupported>(
      "{}: images are read from there, and nothing can be added; copy the image with `varve image export` "
      "to oci:DIR:TAG or a registry first",
      name_);
}

std::shared_ptr<Repository> open_image_folder(const std::filesystem::path& dir) {
  const auto name = "dir:" + dir.string();
  if (!std::filesystem::is_directory(dir)) fail<NotFound>("{}: there is no such folder", name);
  std::vector<ImageView::Named> documents;
  std::map<Digest, ImageView::Piece> blobs;
  const auto add_document = [&](const std::filesystem::path& file, bool is_image) {
    const auto bytes = read_file_if_there(file, kMaxManifestBytes);
    if (!bytes) fail<NotFound>("{}: the file {} is missing", name, file.filename().string());
    const auto media_type = internal::document_media_type(*bytes, file.string());
    documents.push_back({.names = {},
                         .document = {.descriptor = descriptor_of(*bytes, media_type), .bytes = *bytes},
                         .is_image = is_image});
  };
  add_document(dir / "manifest.json", true);
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const auto file = entry.path().filename().string();
    if (file.ends_with(".manifest.json")) add_document(entry.path(), false);
    const auto digest = Digest::try_parse("sha256:" + file);
    if (digest && entry.is_regular_file())
      blobs[*digest] = {.file = entry.path(), .offset = 0, .size = entry.file_size()};
  }
  return std::make_shared<ImageView>(name, std::move(documents), std::move(blobs), UniqueFd());
}

}  // namespace varve::oci
