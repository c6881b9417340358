#pragma once
// For tests: an image's files as they lie in the streams of its layers.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/index/merge/flat_tree.h"
#include "core/oci/descriptor.h"

namespace varve::test {

class MadeFiles {
 public:
  // `name` of each layer makes its digest.
  explicit MadeFiles(const std::vector<std::string>& names) : streams(names.size()) {
    for (const auto& name : names) {
      oci::Descriptor layer;
      layer.digest = digest_of(name);
      layers.push_back(layer);
    }
    tree.layers = std::uint32_t(names.size());
  }

  // Behind what the layer has: a block in place of its header, and padding after it.
  MadeFiles& add(const std::string& path, std::string_view content, std::uint32_t layer = 0) {
    auto& stream = streams[layer];
    stream.resize(stream.size() + kBlock, std::byte(0xAA));
    index::FlatEntry file;
    file.type = FileType::kRegular;
    file.mode = 0644;
    file.size = content.size();
    file.content_digest = digest_of(content);
    file.layer = layer;
    file.runs.push_back(
        {.layer = layer, .run = {.file_offset = 0, .stream_offset = stream.size(), .length = content.size()}});
    append(stream, varve::as_bytes(content));
    stream.resize((stream.size() + kBlock - 1) / kBlock * kBlock);
    tree.entries.insert_or_assign(path, std::move(file));
    return *this;
  }

  // A part of a file, as its layer has it.
  ByteRange place(const std::string& path, std::uint64_t offset = 0, std::uint64_t length = UINT64_MAX) const {
    const auto& file = tree.entries.at(path);
    return {.offset = file.runs.front().run.stream_offset + offset, .length = std::min(length, file.size - offset)};
  }
  std::uint32_t layer_of(const std::string& path) const { return tree.entries.at(path).layer; }
  ByteView bytes(std::uint32_t layer, ByteRange range) const {
    return ByteView(streams.at(layer)).subspan(range.offset, range.length);
  }

  static constexpr std::size_t kBlock = 512;
  std::vector<oci::Descriptor> layers;
  std::vector<Bytes> streams;
  index::FlatTree tree;
};

}  // namespace varve::test
