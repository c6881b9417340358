#pragma once
// What the tests and benchmarks of this folder share: data of several kinds, other people's compressors, listeners that
// keep everything.
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/codec/gzip_walker.h"
#include "core/codec/zstd_walker.h"

namespace varve::codec::test {

// Repeatable bytes; the kinds differ in how they compress.
Bytes random_bytes(std::size_t size, std::uint32_t seed = 1);
Bytes text_like_bytes(std::size_t size, std::uint32_t seed = 1);     // words that come back near and far
Bytes program_like_bytes(std::size_t size, std::uint32_t seed = 1);  // records that differ little, noise, runs of zeros
std::vector<std::pair<std::string, Bytes>> sample_contents();

Bytes concat(std::initializer_list<ByteView> parts);

// zlib, as gzip members. `strategy` is one of zlib's.
Bytes gzip(ByteView bytes, int level = 6, int strategy = 0, int memory_level = 8);
// Flushes every `step` bytes, so that there are many blocks (`full`: none refers to what is before it).
Bytes gzip_with_flushes(ByteView bytes, std::size_t step, bool full = false);
// What zlib makes of it, over all members; absent if it finds anything wrong or the data ends too early, which
// `came_to_end` tells apart.
std::optional<Bytes> gunzip(ByteView compressed, bool* came_to_end = nullptr);

bool have_tool(const std::string& name);
// Runs a shell command with `input` as its standard input and returns its standard output; the exit status must be 0.
Bytes run_tool(const std::string& command, ByteView input);

struct KeptBoundary {
  GzipBoundary boundary;
  Bytes window;
};

struct KeepingGzipListener final : GzipListener {
  void on_stream_bytes(ByteView bytes) override { append(stream, bytes); }
  void on_boundary(const GzipBoundary& boundary, ByteView window) override {
    delivered_before.push_back(stream.size());
    boundaries.push_back({boundary, to_bytes(window)});
  }
  Bytes stream;
  std::vector<KeptBoundary> boundaries;
  std::vector<std::uint64_t> delivered_before;  // how much of the stream had been given at each boundary
};

// Feeds a walker in pieces of `step` bytes.
template <typename Walker>
void feed_in_steps(Walker& walker, ByteView compressed, std::size_t step) {
  for (std::size_t at = 0; at < compressed.size(); at += step)
    walker.feed(compressed.subspan(at, std::min(step, compressed.size() - at)));
  walker.finish();
}

}  // namespace varve::codec::test
