#include "core/codec/zstd_walker.h"

#include <zstd_errors.h>

#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "core/codec/internal/zstd_handles.h"
#include "core/codec/zstd_magic.h"

namespace varve::codec {
namespace {

constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kMaxHeaderBytes = 18;  // of a frame, its magic too
constexpr std::size_t kZstdOutputBytes = 256 * 1024;

}  // namespace

class ZstdWalker::Impl {
 public:
  Impl(std::string what, ZstdListener& listener)
      : what_(std::move(what)),
        listener_(listener),
        decoder_(internal::make_zstd_decoder(kMaxZstdWindowLog)),
        output_(kZstdOutputBytes) {}

  void feed(ByteView compressed) {
    while (!compressed.empty())
      compressed = compressed.subspan(in_frame_ ? decode(beside_header(compressed)) : collect_magic(compressed));
  }

  void finish() {
    if (in_frame_ || !magic_.empty())
      fail<CorruptData>("{}: zstd data at {}: the blob ends in the middle of a frame", what_, compressed_offset_);
    if (frames_ == 0) fail<CorruptData>("{}: zstd data at {}: there is no frame", what_, compressed_offset_);
  }

  std::uint64_t frames() const { return frames_; }

 private:
  // The decoder passes over skippable frames without a word, so the first bytes of each frame are looked at before it
  // gets them.
  std::size_t collect_magic(ByteView compressed) {
    const auto used = std::min(compressed.size(), kMagicBytes - magic_.size());
    append(magic_, compressed.first(used));
    if (magic_.size() < kMagicBytes) return used;
    const auto magic = load_le<std::uint32_t>(magic_.data());
    frame_offset_ = compressed_offset_;
    content_frame_ = magic == kZstdFrameMagic;
    if (content_frame_) {
      ++frames_;
      listener_.on_frame(frame_offset_, stream_offset_);
    } else if (!is_zstd_skippable(magic)) {
      fail<CorruptData>("{}: zstd data at {}: no frame begins here", what_, frame_offset_);
    }
    in_frame_ = true;
    decode(std::exchange(magic_, {}));
    return used;
  }

  // A decoder that has the first part of a header tries whether a whole frame begins where its new input does (1.5.4):
  // the rest of a header can look like a skippable one. In a single byte there is none.
  ByteView beside_header(ByteView compressed) const {
    return compressed_offset_ - frame_offset_ < kMaxHeaderBytes ? compressed.first(1) : compressed;
  }

  // Returns how much it took: all, or up to the end of the frame.
  std::size_t decode(ByteView compressed) {
    ZSTD_inBuffer in{compressed.data(), compressed.size(), 0};
    while (true) {
      ZSTD_outBuffer out{output_.data(), output_.size(), 0};
      const auto in_before = in.pos;
      const auto result = ZSTD_decompressStream(decoder_.get(), &out, &in);
      compressed_offset_ += in.pos - in_before;
      if (ZSTD_isError(result)) reject(result);
      if (out.pos != 0) {
        stream_offset_ += out.pos;
        listener_.on_stream_bytes(ByteView(output_).first(out.pos));
      }
      if (result == 0) {
        in_frame_ = false;
        if (content_frame_) listener_.on_frame_end(compressed_offset_);
        return in.pos;
      }
      if (in.pos == in.size && out.pos < out.size) return in.pos;
    }
  }

  [[noreturn]] void reject(std::size_t result) const {
    const auto code = ZSTD_getErrorCode(result);
    const bool cannot = code == ZSTD_error_frameParameter_windowTooLarge || code == ZSTD_error_dictionary_wrong;
    if (cannot) fail<Unsupported>("{}: zstd data at {}: {}", what_, compressed_offset_, ZSTD_getErrorName(result));
    fail<CorruptData>("{}: zstd data at {}: {}", what_, compressed_offset_, ZSTD_getErrorName(result));
  }

  std::string what_;
  ZstdListener& listener_;
  internal::ZstdDecoder decoder_;
  Bytes output_;
  Bytes magic_;
  bool in_frame_ = false;
  bool content_frame_ = false;  // else a skippable one
  std::uint64_t frames_ = 0;
  std::uint64_t frame_offset_ = 0;
  std::uint64_t compressed_offset_ = 0;  // of what the decoder has taken
  std::uint64_t stream_offset_ = 0;
};

ZstdWalker::ZstdWalker(std::string what, ZstdListener& listener)
    : impl_(std::make_unique<Impl>(std::move(what), listener)) {}
ZstdWalker::~ZstdWalker() = default;
void ZstdWalker::feed(ByteView compressed) { impl_->feed(compressed); }
void ZstdWalker::finish() { impl_->finish(); }
std::uint64_t ZstdWalker::frames() const { return impl_->frames(); }

}  // namespace varve::codec
