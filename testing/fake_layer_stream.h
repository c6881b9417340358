#pragma once
// For tests: a layer stream over a local file whose bytes "arrive" when the test says so.
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <vector>

#include "core/base/files/unique_fd.h"
#include "fuse/stream/layer_stream.h"

namespace varve::test {

class FakeLayerStream final : public fuse::LayerStream {
 public:
  // The stream's bytes are those of the file. Its digest is that of the file's name.
  FakeLayerStream(const std::filesystem::path& file, std::uint64_t stream_bytes);

  // Everything is here (the beginning), or nothing is until it is wanted; `held`: what is wanted waits for arrive().
  void set_here() { set(Mode::kHere); }
  void set_missing() { set(Mode::kMissing); }
  void hold() { set(Mode::kHeld); }
  // From now on what was wanted while it was missing stays here.
  void keep_what_comes();
  // What waits arrives, and later wishes are served at once.
  void arrive();
  // What waits fails, and everything later too.
  void fail_all(const std::string& message);
  void wait_for_wishes(std::size_t count);
  // Calls so far of ensure(), and of read() for what is missing.
  std::size_t wishes();
  // What was asked for, in order of the stream, neighbours as one.
  std::vector<ByteRange> wished();
  // Spans of a size over the whole stream; without them it has none.
  void cut_into_spans(std::uint64_t span_bytes);

  const index::LayerMap& map() const override { return map_; }
  bool is_readable(ByteRange stream_range) const override;
  void ensure(ByteRange stream_range, fuse::Priority priority, Done done) override;
  void read(std::uint64_t stream_offset, std::span<std::byte> into, Done done) override;
  Digest bring_digest_of_span(std::size_t span) override { return map_.digests.at(span).stream; }
  bool read_if_readable(std::uint64_t stream_offset, std::span<std::byte> into) override;
  void note_cold(const Digest&, const std::vector<ByteRange>&) override {}
  bool complete() const override;
  bool keep_whole() override { return complete(); }
  void keep_mounted() override {}
  std::filesystem::path store_file() const override { return file_; }
  fuse::StreamStats stats() const override;
  Verified verify() override { return {}; }

 private:
  enum class Mode { kHere, kMissing, kHeld, kFailing };
  void set(Mode mode);
  void read_file(std::uint64_t stream_offset, std::span<std::byte> into) const;

  std::filesystem::path file_;
  UniqueFd fd_;
  index::LayerMap map_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Mode mode_ = Mode::kHere;
  std::string message_;
  std::vector<Done> waiting_;
  std::size_t wishes_ = 0;
  std::vector<ByteRange> wished_;
  bool keeps_ = false;
  std::vector<ByteRange> kept_;  // joined
  std::uint64_t present_bytes_ = 0;
};

}  // namespace varve::test
