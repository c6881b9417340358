#pragma once
// Reads file contents straight from a repository through an index, keeping nothing: for `cat`, checks and tools. The
// mount has a store and reads through fuse/stream/layer_stream.h instead.
#include <cstdint>
#include <functional>
#include <vector>

#include "core/codec/span_decoder.h"
#include "core/index/local_index.h"
#include "core/index/span_reader.h"
#include "core/oci/image.h"

namespace varve::index {

// Not shared between threads. Image, index and local index must outlive it.
class ContentReader {
 public:
  // `check`: see span_reader.h; with kCompressed what is given has still to be checked.
  ContentReader(const oci::Image& image, const LoadedIndex& index, const LocalIndex& local,
                SpanCheck check = SpanCheck::kBoth);

  // Gives a regular file's whole content in order, holes as zeros, every byte verified before it is given. Fetches only
  // the spans that hold it, neighbours in one request. Throws CorruptSpan, and what the repository throws.
  void read(Nid file, const oci::ByteSink& sink);

  // Gives ranges of one layer's stream, in order, each in pieces. They ascend by offset and may overlap. Each span is
  // fetched and decoded once; neighbours come in one request, and so do spans with little between them.
  using RangeSink = std::function<void(std::size_t range, ByteView part)>;
  void read_ranges(std::size_t layer, const std::vector<ByteRange>& stream_ranges, const RangeSink& sink);

  std::uint64_t fetched_bytes() const { return fetched_bytes_; }  // compressed side, windows included
  std::uint64_t requests() const { return requests_; }

 private:
  void read_device(const DeviceRun& run, const oci::ByteSink& sink);
  void read_ranges_device(ByteRange device_range, const oci::ByteSink& sink);
  void read_stream(std::size_t layer, ByteRange stream_range, const oci::ByteSink& sink);
  // Decodes spans first..last, fetched with one request.
  using SpanSink = std::function<void(const Span& span, ByteView stream)>;
  void read_spans(std::size_t layer, std::size_t first, std::size_t last, const SpanSink& sink);
  void check_range(std::size_t layer, ByteRange stream_range) const;
  // One of each span from `first` to `last`, empty where none is needed.
  std::vector<Bytes> fetch_records(std::size_t layer, std::size_t first, std::size_t last);
  // All spans before `stream_end`.
  void read_single_frame(std::size_t layer, std::uint64_t stream_end, const SpanSink& sink);
  Bytes fetch(oci::Repository& repository, const oci::Descriptor& blob, ByteRange range);

  const oci::Image& image_;
  const LoadedIndex& index_;
  const LocalIndex& local_;
  SpanCheck check_;
  codec::SpanDecoder decoder_;
  Bytes window_;  // what the next span needs, if it follows the last one
  std::uint64_t fetched_bytes_ = 0;
  std::uint64_t requests_ = 0;
};

}  // namespace varve::index
