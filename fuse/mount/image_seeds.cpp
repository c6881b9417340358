#include "fuse/mount/image_seeds.h"

#include <algorithm>
#include <utility>

#include "core/base/zeros.h"
#include "core/codec/tar_block.h"

namespace varve::fuse {
namespace {

std::uint64_t padded_end(const index::SeedRange& range) { return codec::next_tar_block(range.stream_range.end()); }

}  // namespace

void ImageSeeds::use(index::Seeds seeds, const std::vector<std::shared_ptr<LayerStream>>& layers,
                     const std::vector<std::shared_ptr<LayerStream>>& sources, Whole whole) {
  auto kept = kept_.lock();
  if (*kept) return;
  auto used = std::make_unique<Used>();
  used->whole = whole;
  for (const auto& source : sources) {
    used->sources.push_back(source ? std::make_unique<SeedStream>() : nullptr);
    if (source) used->sources.back()->stream = source;
  }
  for (auto& layer : seeds.layers) {
    const auto stream = std::ranges::find(layers, layer.layer, [](const auto& one) { return one->map().layer_digest; });
    if (stream == layers.end()) continue;
    std::erase_if(layer.ranges, [&](const index::SeedRange& range) {
      const auto& source = sources.at(range.source);
      return !source || !ByteRange{.offset = range.source_offset, .length = range.stream_range.length}.fits_in(
                            source->map().stream_bytes);
    });
    layer.ranges.shrink_to_fit();
    used->layers[stream->get()] = {.ranges = std::move(layer.ranges), .literals = std::move(layer.literals)};
  }
  *kept = std::move(used);
  used_.store(kept->get(), std::memory_order_release);
}

// One piece, cut from its begin to its end into what its own layer, a source or a literal has.
class ImageSeeds::Cut {
 public:
  Cut(const Used& used, const Layer& layer, const StreamPiece& piece, std::vector<StreamPiece>& pieces)
      : used_(used), layer_(layer), piece_(piece), pieces_(pieces), first_(pieces.size()), at_(piece.stream_offset) {}

  void run() {
    const auto end = piece_.stream_offset + piece_.length;
    auto next = std::ranges::upper_bound(layer_.ranges, at_, {}, padded_end);
    for (; next != layer_.ranges.end() && next->stream_range.offset < end; ++next) {
      const auto taken = pieces_.size();
      leave_to_layer(next->stream_range.offset);
      if (pieces_.size() > taken && next != layer_.ranges.begin())
        pieces_.back().between_files = next->stream_range.offset - padded_end(*std::prev(next)) < kMostHeaderBytes;
      take_range(*next, std::min(end, next->stream_range.end()));
      take_literal(std::min(end, padded_end(*next)), kZeros.data());
    }
    leave_to_layer(end);
  }

 private:
  // What its source has of a range up to there, with the literals in it.
  void take_range(const index::SeedRange& range, std::uint64_t end) {
    const auto& source = *used_.sources[range.source]->stream;
    const auto to_source = range.source_offset - range.stream_range.offset;  // modulo 2^64
    if (used_.whole == Whole::kCopied &&
        source.is_readable({.offset = range.source_offset, .length = range.stream_range.length}))
      return leave_to_layer(end);
    while (at_ < end) {
      const auto& span = source.map().spans[source.map().span_at(at_ + to_source)].stream_range;
      const auto part_end = std::min(end, span.end() - to_source);
      if (source.is_readable({.offset = at_ + to_source, .length = part_end - at_}))
        take_seed(range, part_end);
      else
        leave_to_layer(part_end);
    }
  }

  void take_seed(const index::SeedRange& range, std::uint64_t end) {
    auto literal =
        std::ranges::upper_bound(layer_.literals, at_, {}, [](const auto& one) { return one.stream_range().end(); });
    for (; literal != layer_.literals.end() && literal->stream_offset < end; ++literal) {
      take_source(range, literal->stream_offset);
      take_literal(std::min(end, literal->stream_range().end()),
                   literal->bytes.data() + (at_ - literal->stream_offset));
    }
    take_source(range, end);
  }

  void take_source(const index::SeedRange& range, std::uint64_t end) {
    if (end <= at_) return;
    auto part = next_part(end);
    part.seed = used_.sources[range.source].get();
    part.seed_offset = range.source_offset + (part.stream_offset - range.stream_range.offset);
    pieces_.push_back(part);
  }

  void take_literal(std::uint64_t end, const std::byte* bytes) {
    if (end <= at_) return;
    auto part = next_part(end);
    part.literal = bytes;
    pieces_.push_back(part);
  }

  // One piece with what the layer has before it.
  void leave_to_layer(std::uint64_t end) {
    if (end <= at_) return;
    const auto part = next_part(end);
    if (pieces_.size() == first_ || pieces_.back().is_elsewhere()) return pieces_.push_back(part);
    pieces_.back().length += part.length;
    pieces_.back().between_files = false;
  }

  StreamPiece next_part(std::uint64_t end) { return piece_.part(std::exchange(at_, end), end); }

  const Used& used_;
  const Layer& layer_;
  const StreamPiece& piece_;
  std::vector<StreamPiece>& pieces_;
  const std::size_t first_;  // of them that is this one's
  std::uint64_t at_;         // stream side: up to here it is cut
};

void ImageSeeds::find_pieces(const StreamPiece& piece, std::vector<StreamPiece>& pieces) const {
  const auto* used = used_.load(std::memory_order_acquire);
  if (used == nullptr || piece.literal != nullptr) return pieces.push_back(piece);
  const auto layer = used->layers.find(piece.stream);
  if (layer == used->layers.end() || piece.stream->is_readable({.offset = piece.stream_offset, .length = piece.length}))
    return pieces.push_back(piece);
  Cut(*used, layer->second, piece, pieces).run();
}

bool ImageSeeds::is_here(LayerStream& layer, ByteRange stream_range) const {
  if (layer.is_readable(stream_range)) return true;
  if (!is_enabled()) return false;
  std::vector<StreamPiece> pieces;
  find_pieces({.stream = &layer, .stream_offset = stream_range.offset, .length = stream_range.length}, pieces);
  return std::ranges::all_of(pieces, [](const StreamPiece& piece) {
    return piece.is_elsewhere() || piece.stream->is_readable({.offset = piece.stream_offset, .length = piece.length});
  });
}

template <typename Bytes>
std::uint64_t ImageSeeds::sum_of(const Bytes& bytes) const {
  const auto* used = used_.load(std::memory_order_acquire);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; used != nullptr && i < used->sources.size(); ++i)
    if (used->sources[i]) sum += bytes(*used->sources[i]);
  return sum;
}

std::vector<std::shared_ptr<LayerStream>> ImageSeeds::sources() const {
  std::vector<std::shared_ptr<LayerStream>> streams;
  const auto* used = used_.load(std::memory_order_acquire);
  for (std::size_t i = 0; used != nullptr && i < used->sources.size(); ++i)
    if (used->sources[i]) streams.push_back(used->sources[i]->stream);
  return streams;
}

std::vector<std::pair<LayerStream*, ByteRange>> ImageSeeds::places_of(
    const LayerStream& source, const std::vector<ByteRange>& stream_ranges) const {
  std::vector<std::pair<LayerStream*, ByteRange>> places;
  const auto* used = used_.load(std::memory_order_acquire);
  if (used == nullptr) return places;
  for (const auto& [layer, seeded] : used->layers)
    for (const auto& range : seeded.ranges) {
      if (used->sources[range.source]->stream.get() != &source) continue;
      for (const auto& bad : stream_ranges) {
        const auto part = bad.common_with({.offset = range.source_offset, .length = range.stream_range.length});
        if (part.length == 0) continue;
        const auto offset = range.stream_range.offset + (part.offset - range.source_offset);
        places.emplace_back(layer, ByteRange{.offset = offset, .length = part.length});
      }
    }
  return places;
}

std::uint64_t ImageSeeds::source_bytes() const {
  return sum_of([](const SeedStream& source) { return source.stream->stats().present_bytes; });
}

std::uint64_t ImageSeeds::read_bytes() const {
  return sum_of([](const SeedStream& source) { return source.read_bytes.load(std::memory_order_relaxed); });
}

}  // namespace varve::fuse
