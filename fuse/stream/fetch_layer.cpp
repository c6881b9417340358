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

std::optional<Digest> FetchLayer::digest_of_span(std::size_t span) {
  const auto record = map->record_range(span);
  if (!map->has_digests_in_windows()) return map->digests[span].stream;
  if (!windows.missing_blocks(record).empty()) return std::nullopt;
  try {
    return map->digests_of(span, windows.load(record)).stream;
  } catch (const TemporaryError&) {  // gone meanwhile
  } catch (const CorruptData&) {
  }
  return std::nullopt;
}

Digest FetchLayer::bring_digest_of_span(std::size_t span) {
  const auto record = map->record_range(span);
  if (const auto digest = digest_of_span(span)) return *digest;
  if (windows.damaged(record)) windows.drop(record);
  if (!windows_blob || window_sources.size() == 0)
    fail<TemporaryError>("layer {}: what the bytes at stream offset {} must be is not here, and there is no source",
                         map->layer_digest.to_string(), map->spans[span].stream_range.offset);
  for (const auto block : windows.missing_blocks(record)) {
    const auto range = windows.block_range(block);
    for (unsigned attempt = 0;; ++attempt) try {
        Bytes bytes;
        counters.requests.fetch_add(1, std::memory_order_relaxed);
        window_sources.nth(attempt)->read_blob(*windows_blob, range, [&](ByteView part) { append(bytes, part); });
        counters.count_bytes(bytes.size(), window_sources.nth(attempt)->is_local());
        windows.put(block, bytes);
        break;
      } catch (const Error&) {
        window_sources.note_wrong_bytes(attempt, *windows_blob, range, std::current_exception());
        if (attempt + 1 >= window_sources.copies()) throw;
      }
  }
  return map->digests_of(span, windows.load(record)).stream;
}

bool FetchLayer::verify_span(std::size_t span) {
  if (const auto digest = digest_of_span(span)) return store.verify(span, *digest);
  store.drop(span);
  return false;
}

}  // namespace varve::fuse
