#pragma once
// Makes layers, with their maps and windows, from bytes: what an index of them would say, cut simply.
#include <cstdint>
#include <memory>

#include "core/base/bytes.h"
#include "core/index/format/image_index.h"
#include "core/index/format/layer_map.h"
#include "core/oci/descriptor.h"
#include "testing/scripted_repository.h"

namespace varve::test {

struct MadeLayer {
  Bytes stream;
  Bytes blob;
  Bytes windows;
  std::shared_ptr<index::LayerMap> map;
  oci::Descriptor blob_descriptor;
  index::LayerIndexBlobs index_blobs;

  // Puts blob and windows into a repository.
  void serve_from(ScriptedRepository& repository) const;
};

// Bytes that compress to about a third, no two regions alike; the same for the same seed.
Bytes some_stream(std::uint64_t bytes, std::uint32_t seed = 1);

// Plain tar: the blob is the stream.
MadeLayer make_tar_layer(Bytes stream, std::uint64_t span_bytes);
// A gzip blob, as any producer made it, with a map as versions before 0.3 made them; spans begin at deflate blocks at
// least `span_bytes` apart. `whole_windows`: bytes that no code refers to stay in the windows, which makes them larger
// and as right.
MadeLayer make_gzip_layer(Bytes gzip_blob, std::uint64_t span_bytes, bool whole_windows = false);
// The same as now: digests in the windows blob, spans of about `follower_bytes` (more than a deflate window; 0: none)
// that follow each other, one with a window every `head_bytes`.
MadeLayer make_followed_gzip_layer(Bytes gzip_blob, std::uint64_t head_bytes, std::uint64_t follower_bytes);
// One zstd frame per span.
MadeLayer make_zstd_layer(Bytes stream, std::uint64_t span_bytes);
// One zstd frame in all.
MadeLayer make_zstd_single_layer(Bytes stream, std::uint64_t span_bytes);
// `gzip -level -c` of the bytes, by the machine's gzip.
Bytes gzip_of(ByteView bytes, int level = 6);

}  // namespace varve::test
