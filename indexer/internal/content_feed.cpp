#include "indexer/internal/content_feed.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/index/content_reader.h"
#include "core/index/whole_layer.h"

namespace varve::indexer {
namespace {

using index::LayerFormat;

// Each batch decodes the spans at its ends for a few files only, so batches are long beside a span; each thread has
// one, and one waits.
constexpr std::size_t kBatchBytes = 16 * 1024 * 1024;

}  // namespace

void SpooledLayers::prepare(std::uint32_t layer, const CancelFlag& cancel) {
  const auto& map = *origin_.index.maps.at(layer);
  if (map.format != LayerFormat::kZstdSingle || files_.contains(layer)) return;
  auto fd = open_file(origin_.scratch_dir, O_TMPFILE | O_RDWR, 0600);
  index::WholeLayerDecoder decoder(
      map, [&](std::size_t, ByteView stream) { write_all(fd.get(), stream, origin_.scratch_dir.string()); });
  const auto& blob = origin_.image.manifest.layers.at(layer);
  origin_.image.repository->read_blob(blob, {.offset = 0, .length = blob.size}, [&](ByteView compressed) {
    cancel.throw_if_cancelled();
    decoder.feed(compressed);
  });
  decoder.finish();
  files_.emplace(layer, std::move(fd));
}

int SpooledLayers::find(std::uint32_t layer) const {
  const auto found = files_.find(layer);
  return found == files_.end() ? -1 : found->second.get();
}

void prepare_runs(const ContentOrigin& origin, SpooledLayers& spooled, std::string_view path,
                  const index::FlatEntry& entry, const CancelFlag& cancel, std::vector<index::TreeRun>& runs) {
  for (const auto& run : entry.runs) {
    if (run.layer >= origin.index.maps.size())
      fail<CorruptData>("{}: its content is in layer {}, which the image does not have", path, run.layer);
    spooled.prepare(run.layer, cancel);
    runs.push_back(run);
  }
}

ContentFeed::ContentFeed(const ContentOrigin& origin, const SpooledLayers& spooled,
                         const std::vector<index::TreeRun>& runs, unsigned threads, const CancelFlag& cancel)
    : origin_(origin),
      spooled_(spooled),
      cancel_(cancel),
      planned_(plan(runs)),
      pool_(unsigned(std::min<std::size_t>(std::max(1u, threads), planned_.size())), std::max(1u, threads) + 1,
            [this] { return [this](Batch&& batch) { return read(std::move(batch)); }; }) {
  fill();
}

// How much of the rest of a run goes into a batch that has so much room: up to the end of a span, if there is one, so
// that the next batch need not decode it again.
std::uint64_t ContentFeed::cut_of(const index::TreeRun& run, std::uint64_t done, std::uint64_t room) const {
  const auto rest = run.run.length - done;
  if (rest <= room) return rest;
  const auto& map = *origin_.index.maps.at(run.layer);
  const auto begin = run.run.stream_offset + done;
  const auto& span = map.spans[map.span_at(begin + room - 1)].stream_range;
  if (span.offset > begin) return span.offset - begin;
  return span.length > kBatchBytes / 2 ? std::min(rest, span.end() - begin)
                                       : room;  // a span of many zeros: one long batch, not one decoding per batch
}

std::deque<ContentFeed::Batch> ContentFeed::plan(const std::vector<index::TreeRun>& runs) const {
  std::deque<Batch> batches;
  for (const auto& run : runs) {
    const auto& map = *origin_.index.maps.at(run.layer);
    if (!ByteRange{run.run.stream_offset, run.run.length}.fits_in(map.stream_bytes))
      fail<CorruptData>("layer {}: bytes {}+{} are outside its stream of {}", map.layer_digest.to_string(),
                        run.run.stream_offset, run.run.length, map.stream_bytes);
    for (std::uint64_t done = 0; done < run.run.length;) {
      if (batches.empty() || batches.back().bytes >= kBatchBytes) batches.emplace_back();
      auto& batch = batches.back();
      const auto part = cut_of(run, done, kBatchBytes - batch.bytes);
      batch.segments.push_back(
          {.layer = run.layer, .stream_range = {run.run.stream_offset + done, part}, .at = batch.bytes});
      batch.bytes += part;
      done += part;
      if (done < run.run.length) batches.emplace_back();
    }
  }
  return batches;
}

void ContentFeed::fill() {
  for (; !planned_.empty() && pool_.has_room(); planned_.pop_front()) pool_.add(std::move(planned_.front()));
}

ContentFeed::Buffer ContentFeed::take_buffer(std::size_t bytes) {
  auto kept = free_.with([&](auto& free) -> Buffer {
    const auto fits = std::ranges::find_if(free, [&](const Buffer& buffer) { return buffer.size >= bytes; });
    if (fits == free.end()) return {};
    auto buffer = std::move(*fits);
    free.erase(fits);
    return buffer;
  });
  if (kept.bytes) return kept;
  const auto size = std::max(bytes, kBatchBytes);
  return {.bytes = std::make_unique_for_overwrite<std::byte[]>(size), .size = size};
}

ContentFeed::Content ContentFeed::read(Batch&& batch) {
  cancel_.throw_if_cancelled();
  auto buffer = take_buffer(batch.bytes);
  const auto content = std::span(buffer.bytes.get(), batch.bytes);
  std::ranges::sort(batch.segments, {},
                    [](const Segment& segment) { return std::pair(segment.layer, segment.stream_range.offset); });
  // Each content is checked whole by who writes it.
  index::ContentReader reader(origin_.image, origin_.index, origin_.local, index::SpanCheck::kCompressed);
  for (auto first = batch.segments.begin(); first != batch.segments.end();) {
    const auto last = std::find_if(first, batch.segments.end(),
                                   [&](const Segment& segment) { return segment.layer != first->layer; });
    if (const int file = spooled_.find(first->layer); file >= 0) {
      for (auto segment = first; segment != last; ++segment)
        pread_exactly(file, segment->stream_range.offset, content.subspan(segment->at, segment->stream_range.length),
                      "the stream of a layer");
    } else {
      std::vector<ByteRange> ranges;
      std::vector<std::size_t> places;
      for (auto segment = first; segment != last; ++segment) {
        ranges.push_back(segment->stream_range);
        places.push_back(segment->at);
      }
      reader.read_ranges(first->layer, ranges, [&](std::size_t range, ByteView part) {
        cancel_.throw_if_cancelled();
        std::memcpy(content.data() + places[range], part.data(), part.size());
        places[range] += part.size();
      });
    }
    first = last;
  }
  return {.buffer = std::move(buffer), .bytes = batch.bytes};
}

ByteView ContentFeed::next() {
  // The piece given last is done with.
  if (given_.buffer.size == kBatchBytes) free_.with([&](auto& free) { free.push_back(std::move(given_.buffer)); });
  given_ = {};
  if (pool_.empty()) throw std::logic_error("more content asked for than was planned");
  given_ = pool_.take();
  fill();
  return {given_.buffer.bytes.get(), given_.bytes};
}

}  // namespace varve::indexer
