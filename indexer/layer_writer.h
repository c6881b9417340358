#pragma once
// From a tar stream to a layer blob that can be entered anywhere: zstd:chunked (containers/storage's dialect,
// docs/formats/zstd-chunked.md), or gzip in members for runtimes that know no zstd. Unpacked, the blob is the tar it
// was made from, byte for byte, so the diff_id stays.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/digest.h"

namespace varve::indexer {

enum class WrittenFormat : std::uint8_t { kZstdChunked, kGzip };

struct LayerWriterOptions {
  WrittenFormat format = WrittenFormat::kZstdChunked;
  int level = 3;      // of zstd (1-19) or gzip (1-9)
  unsigned jobs = 0;  // threads that compress; 0 = one per core. The bytes do not depend on it
};

// What the bytes of a layer depend on beside its tar: format, level, the version of the library. "zstd:chunked 3,
// libzstd 1.5.4, cuts 1".
std::string writer_name(const LayerWriterOptions& options);

struct WrittenLayer {
  std::string media_type;
  std::map<std::string, std::string> annotations;
  Digest digest;  // of the blob
  std::uint64_t compressed_bytes = 0;
  Digest diff_id;  // of the tar
  std::uint64_t stream_bytes = 0;
  // Why the blob has no table of contents though the format would: podman cannot pull it in parts then, all else holds.
  // "" = it has one.
  std::string without_table;
};

// Memory: some MiB a thread, the table of contents compressed, and the names of the entries. Not shared between
// threads.
class LayerWriter {
 public:
  using Sink = std::function<void(ByteView)>;
  // Told of each file with content, in order, when its last byte has gone by; may throw.
  using OnFile = std::function<void(const std::string& name, const Digest& content)>;
  // `what` names the layer in messages. `sink` gets the blob in order, on the thread that feeds.
  LayerWriter(std::string what, const LayerWriterOptions& options, Sink sink, OnFile on_file = {});
  ~LayerWriter();
  // Both throw CorruptData or Unsupported naming `what` for a tar that is none, and what the sink throws.
  void feed(ByteView stream);
  WrittenLayer finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::indexer
