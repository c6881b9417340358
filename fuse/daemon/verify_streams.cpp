#include "fuse/daemon/verify_streams.h"

#include <future>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/index/this_index.h"

namespace varve::fuse {

bool fetch_anew(LayerStream& stream, ByteRange range) {
  std::promise<void> fetched;
  stream.ensure(range, Priority::kReader, [&](std::exception_ptr error) {
    if (error)
      fetched.set_exception(error);
    else
      fetched.set_value();
  });
  try {
    fetched.get_future().get();
    return true;
  } catch (const std::exception& error) {
    log::error("verify: a damaged span of a mounted layer could not be fetched anew, the next verify tries again: {}",
               error.what());
    return false;
  }
}

std::optional<Digest> map_of(const StoredLayer& stored, index::LocalIndex& local) {
  if (stored.map) return stored.map;
  const auto blobs = local.find_layer_index(stored.layer);
  return blobs ? std::optional(blobs->map.digest) : std::nullopt;
}

VerifyResult verify_streams(const std::vector<std::shared_ptr<LayerStream>>& streams, const OnDamaged& on_damaged,
                            const Work& work) {
  for (const auto& stream : streams) work.progress.expect(stream->stats().present_bytes);
  VerifyResult result;
  for (const auto& stream : streams) {
    work.cancel.throw_if_cancelled();
    const auto verified = stream->verify();
    work.progress.add(verified.checked_bytes);
    result.checked_bytes += verified.checked_bytes;
    const auto& layer = stream->map().layer_digest;
    for (const auto& bad : verified.bad) {
      log::error("verify: layer {} at {}+{} is damaged in the store; dropped, it will be fetched anew",
                 layer.to_string(), bad.offset, bad.length);
      result.bad.push_back({.layer = layer, .stream_offset = bad.offset, .length = bad.length});
    }
    if (verified.bad.empty() || !on_damaged(*stream, verified.bad)) continue;
    for (const auto& bad : verified.bad) fetch_anew(*stream, bad);
  }
  return result;
}

std::shared_ptr<LayerStream> open_stored_stream(LayerStreams& streams, const StoredLayer& stored, const Digest& map,
                                                const std::filesystem::path& root) {
  auto found = index::find_map(root, map);
  if (!found || found->layer_digest != stored.layer) return nullptr;
  oci::Descriptor layer;
  layer.digest = stored.layer;
  layer.size = found->compressed_bytes;
  index::LayerIndexBlobs blobs;
  blobs.layer_digest = stored.layer;
  blobs.map.digest = map;
  if (stored.entries) blobs.entries.digest = *stored.entries;
  if (found->windows_bytes > 0) {
    blobs.windows.emplace();
    blobs.windows->digest = found->windows_digest;
    blobs.windows->size = found->windows_bytes;
  }
  return streams.stream(std::move(found), layer, nullptr, blobs, nullptr);
}

std::vector<std::shared_ptr<LayerStream>> open_stored_streams(LayerStreams& streams, index::LocalIndex& local,
                                                              const std::filesystem::path& root) {
  std::vector<std::shared_ptr<LayerStream>> opened;
  for (const auto& stored : streams.stored_layers()) {
    const auto map = map_of(stored, local);
    if (auto stream = map ? open_stored_stream(streams, stored, *map, root) : nullptr)
      opened.push_back(std::move(stream));
    else
      log::warn("verify: layer {} is in the store, but its index is not on this machine; left alone",
                stored.layer.to_string());
  }
  return opened;
}

}  // namespace varve::fuse
