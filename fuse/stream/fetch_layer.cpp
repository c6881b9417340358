#include "fuse/stream/fetch_layer.h"

#include <algorithm>

#include "core/base/errors.h"

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

unsigned SourceList::copies() const {
  unsigned copies = 0;
  for (const auto& repository : all()) copies += repository->source_count();
  return copies;
}

std::uint64_t SourceList::mirror_bytes(const Digest& blob) const {
  std::uint64_t bytes = 0;
  for (const auto& repository : all()) bytes += repository->mirror_bytes(blob);
  return bytes;
}

void SourceList::note_wrong_bytes(unsigned attempt, const oci::Descriptor& blob, ByteRange range,
                                  const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const CorruptData& wrong) {
    if (const auto repository = nth(attempt)) repository->note_wrong_bytes(blob, range, wrong.what());
  } catch (...) {
  }
}

std::vector<std::shared_ptr<oci::Repository>> SourceList::all() const {
  return repositories_.with([](const auto& repositories) { return repositories; });
}

}  // namespace varve::fuse
