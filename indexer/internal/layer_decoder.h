#pragma once
// First stage of the pass over a layer: from compressed bytes to batches of both sides with the places where decoding
// can begin.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/codec/sniff.h"
#include "core/index/format/layer_map.h"
#include "indexer/span_planner.h"

namespace varve::indexer {

// Boundaries that follow each other within so few stream bytes are not all told.
inline constexpr std::uint64_t kPlaceGapBytes = 16 * 1024;
// The decoders hold back less input than this.
inline constexpr std::uint64_t kMaxHeldBackBytes = 1024 * 1024;
// A zstd layer with a longer frame than this is read as one that cannot be entered in the middle.
inline constexpr std::uint64_t kMaxFrameStreamBytes = 32 * 1024 * 1024;

// Bytes of both sides, shared read-only by the later stages once it is handed on.
struct Batch {
  struct Mark {
    enum class Kind { kPlace, kFrameEnd };
    Kind kind = Kind::kPlace;
    SpanStart place;  // kFrameEnd: where a zstd frame ends, only the two offsets
  };
  codec::Container container = codec::Container::kTar;
  std::uint64_t compressed_offset = 0;
  std::uint64_t stream_offset = 0;
  Bytes compressed;  // what was given to the decoder while this batch was filled; empty for plain layers
  Bytes stream;
  std::vector<Mark> marks;  // in stream order, within the stream bytes or at their end
};
using BatchPtr = std::shared_ptr<const Batch>;

struct DecodedSizes {
  index::LayerFormat format = index::LayerFormat::kTar;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t stream_bytes = 0;
};

class LayerDecoder {
 public:
  virtual ~LayerDecoder() = default;
  virtual index::LayerFormat format() const = 0;  // final only after finish()
  virtual void feed(ByteView compressed) = 0;
  virtual DecodedSizes finish() = 0;
};

// Cuts what it is fed into pieces of one size, so that nothing depends on how a transfer was cut; chooses the decoder
// by the first bytes. `what` names the layer in messages. `hand_on` gets the batches in order. feed() and finish()
// throw CorruptData, Unsupported beyond `max_stream_bytes`, and what hand_on throws.
class LayerReader {
 public:
  using HandOn = std::function<void(BatchPtr)>;
  LayerReader(std::string what, std::uint64_t max_stream_bytes, HandOn hand_on);
  ~LayerReader();
  void feed(ByteView compressed);
  DecodedSizes finish();

 private:
  void feed_piece();
  std::string what_;
  std::uint64_t max_stream_bytes_;
  HandOn hand_on_;
  Bytes piece_;
  std::unique_ptr<LayerDecoder> decoder_;
};

}  // namespace varve::indexer
