#pragma once
// Layers of files, with the layer entries that an index has of them.
#include <string>
#include <vector>

#include "core/index/format/layer_entry_reader.h"
#include "testing/layer_maker.h"
#include "testing/tar_support.h"

namespace varve::test {

struct FileInLayer {
  std::string path;
  Bytes content;
  std::uint32_t mtime = 1'700'000'000;
};

struct ContentLayer : MadeLayer {
  index::LayerEntries entries;

  // Where a file's content lies in the stream.
  ByteRange range_of(std::string_view path) const {
    for (const auto& entry : entries.entries)
      if (entry.path == path) return {.offset = entry.runs.at(0).stream_offset, .length = entry.size};
    return {};
  }
  // Other entries for the same layer.
  void set_entries(std::vector<index::LayerEntry> list) {
    entries.layer_digest = map->layer_digest;
    entries.entries = std::move(list);
    const auto blob = entries.encode();
    index_blobs.entries.digest = digest_of(blob);
    index_blobs.entries.size = blob.size();
  }
  Digest entries_digest() const { return index_blobs.entries.digest; }
};

// `make` is one of layer_maker.h.
inline ContentLayer make_content_layer(const std::vector<FileInLayer>& files, std::uint64_t span_bytes,
                                       MadeLayer (*make)(Bytes, std::uint64_t) = make_tar_layer) {
  codec::test::TarBuilder tar;
  for (const auto& file : files)
    tar.header({.name = file.path, .size = file.content.size(), .mtime = codec::test::octal(file.mtime, 12)})
        .data(file.content);
  tar.end();
  ContentLayer layer{make(to_bytes(tar.bytes()), span_bytes), {}};
  index::LayerEntryReader reader("made layer", nullptr);
  reader.feed(layer.stream);
  reader.finish();
  layer.set_entries(reader.take_entries());
  return layer;
}

}  // namespace varve::test
