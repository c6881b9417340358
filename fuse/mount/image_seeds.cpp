#include "fuse/mount/image_seeds.h"

#include <algorithm>
#include <array>

#include "core/codec/tar_block.h"

namespace varve::fuse {
namespace {

// Behind a file, up to the next block of its tar.
constexpr std::array<std::byte, codec::kTarBlock> kZeros{};

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

void ImageSeeds::find_pieces(const StreamPiece& piece, std::vector<StreamPiece>& pieces) const {
  const auto* used = used_.load(std::memory_order_acquire);
  const auto layer =
      used == nullptr ? std::unordered_map<LayerStream*, Layer>::const_iterator() : used->layers.find(piece.stream);
  const ByteRange wanted{.offset = piece.stream_offset, .length = piece.length};
  if (used == nullptr || layer == used->layers.end() || piece.literal != nullptr || piece.stream->is_readable(wanted))
    return pieces.push_back(piece);
  const auto& [ranges, literals] = layer->second;
  const auto first = pieces.size();
  auto at = wanted.offset;
  const auto take = [&](std::uint64_t end, const index::SeedRange* range, const std::byte* literal) {
    if (end <= at) return;
    auto part = piece.part(at, end);
    part.literal = literal;
    if (range != nullptr) {
      part.seed = used->sources[range->source].get();
      part.seed_offset = range->source_offset + (at - range->stream_range.offset);
    }
    at = end;
    const bool goes_on =
        range == nullptr && literal == nullptr && pieces.size() > first && !pieces.back().is_elsewhere();
    if (!goes_on) return pieces.push_back(part);
    pieces.back().length += part.length;
    pieces.back().between_files = false;
  };
  // The parts of a range that its source has, with the literals in them.
  const auto take_range = [&](const index::SeedRange& range, std::uint64_t end) {
    const auto& source = *used->sources[range.source]->stream;
    const auto to_source = range.source_offset - range.stream_range.offset;  // modulo 2^64
    if (used->whole == Whole::kCopied &&
        source.is_readable({.offset = range.source_offset, .length = range.stream_range.length}))
      return take(end, nullptr, nullptr);
    while (at < end) {
      const auto& span = source.map().spans[source.map().span_at(at + to_source)].stream_range;
      const auto part_end = std::min(end, span.end() - to_source);
      const ByteRange there{.offset = at + to_source, .length = part_end - at};
      if (!source.is_readable(there)) {
        take(part_end, nullptr, nullptr);
        continue;
      }
      auto literal =
          std::ranges::upper_bound(literals, at, {}, [](const auto& one) { return one.stream_range().end(); });
      for (; literal != literals.end() && literal->stream_offset < part_end; ++literal) {
        take(literal->stream_offset, &range, nullptr);
        take(std::min(part_end, literal->stream_range().end()), nullptr,
             literal->bytes.data() + (at - literal->stream_offset));
      }
      take(part_end, &range, nullptr);
    }
  };
  auto next = std::ranges::upper_bound(ranges, at, {}, padded_end);
  for (; next != ranges.end() && next->stream_range.offset < wanted.end(); ++next) {
    const auto taken = pieces.size();
    take(next->stream_range.offset, nullptr, nullptr);
    if (pieces.size() > taken && next != ranges.begin())
      pieces.back().between_files = next->stream_range.offset - padded_end(*std::prev(next)) < kMostHeaderBytes;
    take_range(*next, std::min(wanted.end(), next->stream_range.end()));
    take(std::min(wanted.end(), padded_end(*next)), nullptr, kZeros.data() + at % codec::kTarBlock);
  }
  take(wanted.end(), nullptr, nullptr);
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
