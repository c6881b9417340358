#pragma once
// Whether an index says what the layers themselves say, where layers lie complete on this machine: what makes an index
// of others as good as one's own.
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/base/errors.h"
#include "core/index/local_index.h"

namespace varve::index {

// The stream of a layer. May throw, also to stop; that reaches the caller.
struct ReadStream {
  // Fills `into` from a place in the stream.
  std::function<void(std::uint64_t stream_offset, std::span<std::byte> into)> read;
  // What the index says of a span's bytes.
  std::function<Digest(std::size_t span)> digest_of_span;
};

// The bytes that were read are not those of the map's spans: the disk they lie on is bad, which says nothing of an
// index.
class DamagedStream : public CorruptData {
 public:
  using CorruptData::CorruptData;
};

// An index is refuted only by bytes whose spans are what their map says: before either of these says what differs, it
// compares the spans and looks once more. Both throw DamagedStream.

// "" if the stream is the one that the image's config names for the layer: SHA-256 = diff_id. Else what it is.
std::string disprove_layer(const LayerMap& map, const ReadStream& read);

// "" if the tree is what the layers, read as tar and laid on each other, make. Else what differs, or what is no tar.
// `read` gives the stream of the layer with that number, base first. Memory: the entries of the image, and the tree
// once more.
std::string disprove_tree(const LoadedIndex& index, const oci::Image& image,
                          const std::function<ReadStream(std::size_t layer)>& read);

// "" if the decoded bytes of its start-up packs are those of the layers where it places them. Else what differs. Asks
// for no blob of a pack.
std::string disprove_packs(const LoadedIndex& index, const std::function<ReadStream(std::size_t layer)>& read);

// True if a tree that differs is false for sure: it claims to be of this very version, which always makes the same
// tree.
bool must_be_equal(const LoadedIndex& index);

}  // namespace varve::index
