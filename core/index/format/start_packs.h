#pragma once
// Start-up packs of an image: for each start that was learnt (an import, a program) a blob with exactly the bytes that
// it read, in the order in which it read them, and where in the image's layers those bytes belong. The blob knows
// nothing of layers, so that the next version of an image, whose layers are others, has the same pack where the files
// are the same. On disk: docs/formats/start-packs.md.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/index/format/layer_map.h"
#include "core/oci/manifest.h"

namespace varve::index {

inline constexpr std::uint64_t kPackFrameBytes = 256 << 10;  // stream side; the last frame of a pack may be shorter
inline constexpr std::uint64_t kMaxStartGroups = 4096;
inline constexpr std::uint64_t kMaxPackRanges = 4'000'000;         // of all groups together; literals the same
inline constexpr std::uint64_t kMaxPackStreamBytes = 16ull << 30;  // of one pack
inline constexpr std::uint64_t kMaxPackLiteralBytes = 64;
inline constexpr std::uint64_t kMaxPackLayers = 65'535;
inline constexpr std::uint64_t kMaxStartPacksBlobBytes = 64ull << 20;

// Bytes of a layer's stream.
struct PackRange {
  std::uint32_t layer = 0;  // in StartPacks::layers
  ByteRange stream_range;   // not empty
  // What lists by place are in the order of.
  std::pair<std::uint32_t, std::uint64_t> place() const { return {layer, stream_range.offset}; }
  bool operator==(const PackRange&) const = default;
};

// A few bytes of a layer's stream that differ between images whose files are otherwise the same (the time of the source
// in compiled Python), so that they are not in the pack.
struct PackLiteral {
  std::uint32_t layer = 0;
  std::uint64_t stream_offset = 0;
  Bytes bytes;  // 1 to kMaxPackLiteralBytes
  std::pair<std::uint32_t, std::uint64_t> place() const { return {layer, stream_offset}; }
  bool operator==(const PackLiteral&) const = default;
};

// One zstd frame of the blob. Frames follow each other without gaps.
struct PackFrame {
  std::uint64_t compressed_bytes = 0;
  Digest compressed_digest;
  Digest stream_digest;  // of the decoded bytes
  bool operator==(const PackFrame&) const = default;
};

struct StartPack {
  Digest blob;           // of all frames
  Digest stream_digest;  // of all decoded bytes
  std::vector<PackFrame> frames;
  // What the stream consists of, in its order: the pack's stream is these bytes, one after the other. No byte twice.
  std::vector<PackRange> ranges;
  std::vector<PackLiteral> literals;  // by layer and offset; in none of the ranges

  std::uint64_t stream_bytes() const;
  std::uint64_t compressed_bytes() const;
  oci::Descriptor descriptor() const;  // of the blob
  // The blob as a layer whose spans are the frames: by it the blob is fetched, verified, kept and evicted.
  LayerMap map() const;
  bool operator==(const StartPack&) const = default;
};

// A start and what it reads beyond what other groups bring that it triggers.
struct StartGroup {
  enum class Kind : std::uint8_t { kProgram = 0, kImport = 1 };
  Kind kind = Kind::kImport;
  std::string name;   // "numpy"; of a program the words of its command, as typed in a shell
  PackRange trigger;  // the first read of any of these bytes sends for the pack
  StartPack pack;
  bool operator==(const StartGroup&) const = default;
};
// "program" "import" (CLI.md).
std::string_view to_string(StartGroup::Kind kind);

struct StartPacks {
  std::vector<Digest> layers;      // in byte order, each once, each with ranges
  std::vector<StartGroup> groups;  // by kind and name, each once

  bool empty() const { return groups.empty(); }
  Bytes encode() const;
  // Accepts only what encode() writes. Throws CorruptData.
  static StartPacks decode(ByteView bytes, std::string_view what);
  // Throws CorruptData if a trigger, range or literal lies outside of the image's layers, each with its map.
  void check(const std::vector<std::shared_ptr<const LayerMap>>& maps, std::string_view what) const;
  bool operator==(const StartPacks&) const = default;
};

}  // namespace varve::index
