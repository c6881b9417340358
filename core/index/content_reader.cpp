#include "core/index/content_reader.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/base/zeros.h"
#include "core/index/whole_layer.h"

namespace varve::index {
namespace {

constexpr std::uint64_t kMaxRequestBytes = 4 * 1024 * 1024;  // compressed side, of neighbouring spans together

constexpr std::uint64_t kMaxGapBytes =
    128 * 1024;  // between two wanted spans: fetched along, for less than another request costs

// Ends the transfer of a blob of which no more is needed.
struct EnoughRead {};

ByteRange intersection(ByteRange a, ByteRange b) {
  const auto start = std::max(a.offset, b.offset);
  const auto end = std::min(a.end(), b.end());
  return {start, end > start ? end - start : 0};
}

// The part of a span's decoded bytes that was asked for.
void give_part(const Span& span, ByteView stream, ByteRange wanted, const oci::ByteSink& sink) {
  const auto part = intersection(span.stream_range, wanted);
  if (part.length > 0) sink(stream.subspan(part.offset - span.stream_range.offset, part.length));
}

}  // namespace

ContentReader::ContentReader(const oci::Image& image, const LoadedIndex& index, const LocalIndex& local,
                             SpanCheck check)
    : image_(image), index_(index), local_(local), check_(check) {}

void ContentReader::read(Nid file, const oci::ByteSink& sink) {
  const auto size = index_.tree->inode(file).size;
  std::uint64_t at = 0;
  for (const auto& run : index_.tree->runs(file)) {
    give_zeros(run.file_offset - at, sink);
    read_device(run, sink);
    at = run.file_offset + run.length;
  }
  give_zeros(size - at, sink);
}

void ContentReader::read_device(const DeviceRun& run, const oci::ByteSink& sink) {
  const ByteRange device_range{run.device_offset, run.length};
  if (run.device == 0) {
    const auto tree = index_.tree_mapping.bytes();
    if (!device_range.fits_in(tree.size()))
      fail<CorruptData>("tree of {}: content outside the tree", image_.digest().to_string());
    sink(tree.subspan(run.device_offset, run.length));
  } else if (run.device <= index_.maps.size()) {
    read_stream(run.device - 1, device_range, sink);
  } else {
    read_ranges_device(device_range, sink);
  }
}

void ContentReader::read_ranges_device(ByteRange device_range, const oci::ByteSink& sink) {
  const auto& ranges = index_.ranges.ranges;
  auto next = std::upper_bound(
      ranges.begin(), ranges.end(), device_range.offset,
      [](std::uint64_t at, const DeviceRange& range) { return at < range.device_offset + range.length; });
  auto at = device_range.offset;
  for (; next != ranges.end() && next->device_offset < device_range.end(); ++next) {
    const auto part = intersection({next->device_offset, next->length}, device_range);
    give_zeros(part.offset - at, sink);
    read_stream(next->layer, {next->stream_offset + (part.offset - next->device_offset), part.length}, sink);
    at = part.end();
  }
  give_zeros(device_range.end() - at, sink);
}

void ContentReader::check_range(std::size_t layer, ByteRange stream_range) const {
  const auto& map = *index_.maps.at(layer);
  if (!stream_range.fits_in(map.stream_bytes))
    fail<CorruptData>("layer {}: bytes {}+{} are outside its stream of {}", map.layer_digest.to_string(),
                      stream_range.offset, stream_range.length, map.stream_bytes);
}

void ContentReader::read_stream(std::size_t layer, ByteRange stream_range, const oci::ByteSink& sink) {
  read_ranges(layer, {stream_range}, [&](std::size_t, ByteView part) { sink(part); });
}

void ContentReader::read_ranges(std::size_t layer, const std::vector<ByteRange>& stream_ranges, const RangeSink& sink) {
  const auto& map = *index_.maps.at(layer);
  std::uint64_t end_of_all = 0;
  for (std::size_t i = 0; i < stream_ranges.size(); ++i) {
    check_range(layer, stream_ranges[i]);
    if (i > 0 && stream_ranges[i].offset < stream_ranges[i - 1].offset)
      throw std::invalid_argument("ranges must ascend");
    end_of_all = std::max(end_of_all, stream_ranges[i].end());
  }
  if (end_of_all == 0) return;
  window_.clear();

  std::size_t first_open = 0;  // ranges before it are given whole
  const auto give_span = [&](const Span& span, ByteView stream) {
    while (first_open < stream_ranges.size() && stream_ranges[first_open].end() <= span.stream_range.offset)
      ++first_open;
    for (auto i = first_open; i < stream_ranges.size() && stream_ranges[i].offset < span.stream_range.end(); ++i)
      give_part(span, stream, stream_ranges[i], [&](ByteView part) { sink(i, part); });
  };
  if (map.format == LayerFormat::kZstdSingle) return read_single_frame(layer, end_of_all, give_span);

  // Runs of spans that one request serves.
  std::optional<std::pair<std::size_t, std::size_t>> run;
  const auto compressed_end = [&](std::size_t span) { return map.spans[span].compressed_range.end(); };
  for (const auto& range : stream_ranges) {
    auto [first, end] = map.spans_of(range);
    if (run) first = std::max(first, run->second + 1);
    // What a span follows is decoded first.
    while (first < end && map.spans[first].follows && !(run && first == run->second + 1)) --first;
    for (auto span = first; span < end; ++span) {
      const auto& compressed = map.spans[span].compressed_range;
      if (run && compressed.offset <= compressed_end(run->second) + kMaxGapBytes &&
          compressed.end() - map.spans[run->first].compressed_range.offset <= kMaxRequestBytes) {
        run->second = span;
        continue;
      }
      if (run) read_spans(layer, run->first, run->second, give_span);
      run = {span, span};
    }
  }
  if (run) read_spans(layer, run->first, run->second, give_span);
}

void ContentReader::read_spans(std::size_t layer, std::size_t first, std::size_t last, const SpanSink& sink) {
  const auto& map = *index_.maps[layer];
  const ByteRange compressed{map.spans[first].compressed_range.offset,
                             map.spans[last].compressed_range.end() - map.spans[first].compressed_range.offset};
  auto& repository = *image_.repository;
  const auto& blob = image_.manifest.layers.at(layer);
  auto bytes = fetch(repository, blob, compressed);
  const auto records = fetch_records(layer, first, last);
  Bytes stream;
  for (auto i = first; i <= last; ++i) {
    const auto& span = map.spans[i];
    stream.resize(span.stream_range.length);
    for (unsigned attempt = 1;; ++attempt) try {
        const auto span_bytes =
            ByteView(bytes).subspan(span.compressed_range.offset - compressed.offset, span.compressed_range.length);
        decode_span(map, i,
                    {.compressed = span_bytes,
                     .record = records[i - first],
                     .before = span.follows ? ByteView(window_) : ByteView()},
                    stream, decoder_, check_);
        break;
      } catch (const CorruptData& error) {
        // Another source may have the right ones.
        if (attempt >= repository.source_count()) throw;
        repository.note_wrong_bytes(blob, span.compressed_range, error.what());
        bytes = fetch(repository, blob, compressed);
      }
    if (i + 1 < map.spans.size() && map.spans[i + 1].follows)
      window_ = to_bytes(ByteView(stream).last(std::min<std::size_t>(stream.size(), kFollowedBytes)));
    sink(span, stream);
  }
}

// Records usually lie in span order: a run of them is one request, of whole blocks where these have digests, which ends
// where the next one does not follow.
std::vector<Bytes> ContentReader::fetch_records(std::size_t layer, std::size_t first, std::size_t last) {
  const auto& map = *index_.maps[layer];
  std::vector<Bytes> records(last - first + 1);
  const auto& windows = index_.blobs.layers.at(layer).windows;
  for (auto i = first; i <= last;) {
    auto range = map.record_range(i);
    auto next = i + 1;
    for (; next <= last && range.length > 0; ++next) {
      const auto record = map.record_range(next);
      if (record.length > 0 && record.offset != range.end()) break;
      range.length += record.length;
    }
    if (range.length > 0) {
      if (!windows)
        fail<CorruptData>("layer {}: its map needs windows, but the index names none", map.layer_digest.to_string());
      const auto unit = map.has_digests_in_windows() ? kWindowBlockBytes : 1;
      const auto begin = range.offset / unit * unit;
      const auto end = std::min((range.end() + unit - 1) / unit * unit, map.windows_bytes);
      const auto blocks = fetch(*local_.holder_of(windows, index_.source), *windows, {begin, end - begin});
      check_window_blocks(map, begin, blocks);
      for (auto k = i; k < next; ++k) {
        const auto record = map.record_range(k);
        if (record.length > 0)
          records[k - first] = to_bytes(ByteView(blocks).subspan(record.offset - begin, record.length));
      }
    }
    i = next;
  }
  return records;
}

void ContentReader::read_single_frame(std::size_t layer, std::uint64_t stream_end, const SpanSink& sink) {
  const auto& map = *index_.maps[layer];
  const auto& blob = image_.manifest.layers.at(layer);
  WholeLayerDecoder decoder(map, [&](std::size_t number, ByteView stream) {
    const auto& span = map.spans[number];
    sink(span, stream);
    if (span.stream_range.end() >= stream_end) throw EnoughRead();
  });
  ++requests_;
  try {
    image_.repository->read_blob(blob, {0, blob.size}, [&](ByteView compressed) {
      fetched_bytes_ += compressed.size();
      decoder.feed(compressed);
    });
    decoder.finish();
  } catch (const EnoughRead&) {
  }
}

Bytes ContentReader::fetch(oci::Repository& repository, const oci::Descriptor& blob, ByteRange range) {
  Bytes bytes;
  bytes.reserve(range.length);
  repository.read_blob(blob, range, [&](ByteView part) { append(bytes, part); });
  ++requests_;
  fetched_bytes_ += bytes.size();
  return bytes;
}

}  // namespace varve::index
