#include "fuse/stream/fetch_layer.h"

#include <algorithm>

namespace varve::fuse {

void SourceList::add(std::shared_ptr<oci::Repository> repository) {
  if (!repository) return;
  repositories_.with([&](auto& repositories) {
    if (std::find(repositories.begin(), repositories.end(), repository) == repositories.end())
      repositories.push_back(std::move(repository));
  });
}

std::shared_ptr<oci::Repository> SourceList::nth(unsigned attempt) const {
  return repositories_.with([&](const auto& repositories) -> std::shared_ptr<oci::Repository> {
    if (repositories.empty()) return nullptr;
    return repositories[attempt % repositories.size()];
  });
}

unsigned SourceList::size() const {
  return repositories_.with([](const auto& repositories) { return unsigned(repositories.size()); });
}

}  // namespace varve::fuse
