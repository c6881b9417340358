#include "fuse/daemon/seen_images.h"

#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "fuse/daemon/remembered_image.h"

namespace varve::fuse {

std::filesystem::path SeenImages::file_of(const ImageSpec& spec) const {
  return dir_ / (digest_of(as_bytes(spec.reference + '\n' + spec.platform)).hex() + ".json");
}

void SeenImages::remember(const ServedImage& image) const {
  try {
    const auto file = file_of(image.spec());
    const auto text =
        encode_handover({.images = {to_handover(image)}, .connections = {}, .mounts = {}, .names = {}, .leases = {}});
    if (const auto known = read_file_if_there(file, kMaxHandoverBytes); known && as_text(*known) == text) return;
    std::filesystem::create_directories(dir_);
    write_file_atomically(file, as_bytes(text), 0600);
  } catch (const std::exception& error) {
    log::warn("what {} means is not remembered for when its registry is away: {}", image.spec().reference,
              error.what());
  }
}

std::optional<HandoverImage> SeenImages::find(const ImageSpec& spec) const {
  try {
    const auto text = read_file_if_there(file_of(spec), kMaxHandoverBytes);
    if (!text) return std::nullopt;
    auto seen = decode_handover(as_text(*text));
    if (seen.images.size() != 1 || seen.images.front().spec.reference != spec.reference)
      fail<CorruptData>("{}: a record of something else", file_of(spec).string());
    return std::move(seen.images.front());
  } catch (const std::exception& error) {
    log::warn("what {} meant when it was last opened cannot be read: {}", spec.reference, error.what());
    return std::nullopt;
  }
}

}  // namespace varve::fuse
