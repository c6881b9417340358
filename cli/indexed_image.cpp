#include "cli/indexed_image.h"

#include "cli/text.h"

namespace varve::cli {

IndexedImage::IndexedImage(const Context& context, const std::string& reference)
    : image(context.open_image(reference)), local(context.local_index()), index(index::load_index(local, image)) {
  windows_ = &index::windows_repository(local, index, image);
}

index::Nid IndexedImage::find(const std::string& path, bool follow_last) const {
  const auto nid = index.tree->resolve(path, follow_last);
  if (!nid) fail<NotFound>("{}: no such file in {}", printable(path), image.digest().to_string());
  return *nid;
}

}  // namespace varve::cli
