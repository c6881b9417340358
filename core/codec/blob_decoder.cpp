#include "core/codec/blob_decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/errors.h"
#include "core/codec/gzip_walker.h"
#include "core/codec/sniff.h"
#include "core/codec/zstd_walker.h"

namespace varve::codec {

class BlobDecoder::Impl final : public GzipListener, public ZstdListener {
 public:
  Impl(std::string what, std::uint64_t max_stream_bytes, OnStream on_stream)
      : what_(std::move(what)), max_stream_bytes_(max_stream_bytes), on_stream_(std::move(on_stream)) {}

  void feed(ByteView compressed) {
    if (container_) return decode(compressed);
    append(head_, compressed);
    if (head_.size() >= kSniffBytes) start();
  }

  void finish() {
    if (!container_) start();
    if (gzip_) gzip_->finish();
    if (zstd_) zstd_->finish();
  }

  std::uint64_t stream_bytes() const { return stream_bytes_; }

 private:
  void start() {
    container_ = sniff(ByteView(head_).first(std::min(head_.size(), kSniffBytes)));
    switch (*container_) {
      case Container::kGzip:
        gzip_ = std::make_unique<GzipWalker>(what_, *this);
        break;
      case Container::kZstd:
        zstd_ = std::make_unique<ZstdWalker>(what_, *this);
        break;
      case Container::kTar:
        break;
      case Container::kUnknown:
        fail<CorruptData>("{} at 0: neither gzip nor zstd nor tar", what_);
    }
    decode(std::exchange(head_, {}));
  }

  void decode(ByteView compressed) {
    if (gzip_) return gzip_->feed(compressed);
    if (zstd_) return zstd_->feed(compressed);
    on_stream_bytes(compressed);
  }

  void on_stream_bytes(ByteView bytes) override {
    if (bytes.size() > max_stream_bytes_ - stream_bytes_)
      fail<Unsupported>("{}: inflates to more than {} bytes", what_, max_stream_bytes_);
    stream_bytes_ += bytes.size();
    on_stream_(bytes);
  }
  bool wants_boundary(std::uint64_t) override { return false; }
  void on_boundary(const GzipBoundary&, ByteView) override {}
  void on_frame(std::uint64_t, std::uint64_t) override {}

  std::string what_;
  std::uint64_t max_stream_bytes_;
  OnStream on_stream_;
  Bytes head_;
  std::optional<Container> container_;
  std::unique_ptr<GzipWalker> gzip_;
  std::unique_ptr<ZstdWalker> zstd_;
  std::uint64_t stream_bytes_ = 0;
};

BlobDecoder::BlobDecoder(std::string what, std::uint64_t max_stream_bytes, OnStream on_stream)
    : impl_(std::make_unique<Impl>(std::move(what), max_stream_bytes, std::move(on_stream))) {}
BlobDecoder::~BlobDecoder() = default;
void BlobDecoder::feed(ByteView compressed) { impl_->feed(compressed); }
void BlobDecoder::finish() { impl_->finish(); }
std::uint64_t BlobDecoder::stream_bytes() const { return impl_->stream_bytes(); }

}  // namespace varve::codec
