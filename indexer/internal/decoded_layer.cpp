#include "indexer/internal/decoded_layer.h"

#include <utility>

#include "core/codec/blob_decoder.h"
#include "core/index/format/layer_map.h"

namespace varve::indexer {
namespace {

constexpr std::size_t kHandedOverBytes = 512 * 1024;

// Nobody wants the rest.
struct Abandoned {};

}  // namespace

DecodedLayer::DecodedLayer(oci::Repository& repository, const oci::Descriptor& layer, std::string what,
                           const Work& work)
    : thread_([this, &repository, &layer, work, name = std::move(what)] { decode(repository, layer, name, work); }) {}

DecodedLayer::~DecodedLayer() { pieces_.abort(); }

void DecodedLayer::decode(oci::Repository& repository, const oci::Descriptor& layer, const std::string& what,
                          const Work& work) {
  try {
    Bytes piece;
    const auto hand_over = [&] {
      if (!piece.empty() && !pieces_.push(std::exchange(piece, {}))) throw Abandoned();
      piece.reserve(kHandedOverBytes);
    };
    codec::BlobDecoder decoder(what, index::kMaxStreamBytes, [&](ByteView stream) {
      if (piece.size() + stream.size() > kHandedOverBytes) hand_over();
      append(piece, stream);
    });
    repository.read_blob(layer, {.offset = 0, .length = layer.size}, [&](ByteView bytes) {
      work.add(bytes.size());
      decoder.feed(bytes);
    });
    decoder.finish();
    hand_over();
  } catch (const Abandoned&) {
  } catch (...) {
    failure_ = std::current_exception();
  }
  pieces_.close();
}

Bytes DecodedLayer::next() {
  if (auto piece = pieces_.pop()) return std::move(*piece);
  if (failure_) std::rethrow_exception(failure_);
  return {};
}

}  // namespace varve::indexer
