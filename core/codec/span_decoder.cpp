#include "core/codec/span_decoder.h"

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <memory>

#include "core/base/errors.h"
#include "core/codec/gzip_walker.h"
#include "core/codec/internal/zstd_handles.h"
#include "core/codec/zstd_walker.h"

namespace varve::codec {
namespace {

constexpr std::size_t kGzipTrailerBytes = 8;  // CRC32 and length: checked when the index was built, skipped here
constexpr std::size_t kMaxIsalBytes = std::size_t(1) << 30;  // its counters have 32 bits

// Decodes one span with ISA-L, which can be entered between deflate blocks: the bits that are left of the shared byte
// go into its bit buffer, the window becomes its dictionary.
class GzipSpan {
 public:
  GzipSpan(inflate_state& state, ByteView compressed, std::span<std::byte> stream, std::string_view what)
      : state_(state), compressed_(compressed), stream_(stream), what_(what) {}

  void enter_block(std::uint8_t bits, ByteView window) {
    isal_inflate_init(&state_);
    state_.crc_flag = ISAL_DEFLATE;
    if (bits != 0) {
      state_.read_in = std::uint8_t(compressed_[0]) >> (8 - bits);
      state_.read_in_length = bits;
      at_ = 1;
    }
    if (window.empty()) return;
    auto* bytes = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(window.data()));  // only read
    if (isal_inflate_set_dict(&state_, bytes, std::uint32_t(window.size())) != ISAL_DECOMP_OK)
      reject("the window is not valid");
  }

  void enter_member() {
    isal_inflate_init(&state_);
    state_.crc_flag = ISAL_DEFLATE;
    isal_gzip_header header;
    isal_gzip_header_init(&header);
    lend_buffers();
    const int result = isal_read_gzip_header(&state_, &header);
    take_back_buffers();
    if (result != ISAL_DECOMP_OK) reject("no gzip member begins here");
    state_.crc_flag = ISAL_DEFLATE;
  }

  void fill() {
    while (filled_ < stream_.size()) {
      lend_buffers();
      const auto in_before = at_;
      const auto out_before = filled_;
      const int result = isal_inflate(&state_);
      take_back_buffers();
      if (result < 0) reject("bad deflate data");
      if (state_.block_state == ISAL_BLOCK_FINISH && filled_ < stream_.size()) {
        leave_member();
        enter_member();
      } else if (at_ == in_before && filled_ == out_before) {
        reject("the compressed bytes end before the span does");
      }
    }
  }

 private:
  void lend_buffers() {
    lent_in_ = std::min(compressed_.size() - at_, kMaxIsalBytes);
    lent_out_ = std::min(stream_.size() - filled_, kMaxIsalBytes);
    state_.next_in = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(compressed_.data())) + at_;
    state_.avail_in = std::uint32_t(lent_in_);
    state_.next_out = reinterpret_cast<std::uint8_t*>(stream_.data()) + filled_;
    state_.avail_out = std::uint32_t(lent_out_);
  }

  void take_back_buffers() {
    at_ += lent_in_ - state_.avail_in;
    filled_ += lent_out_ - state_.avail_out;
  }

  // Whole bytes that ISA-L took into its bit buffer belong to the trailer.
  void leave_member() {
    at_ -= std::min<std::size_t>(at_, std::size_t(std::max(state_.read_in_length, 0)) / 8);
    if (compressed_.size() - at_ < kGzipTrailerBytes) reject("the compressed bytes end before the span does");
    at_ += kGzipTrailerBytes;
  }

  [[noreturn]] void reject(std::string_view reason) const {
    fail<CorruptData>("{}: gzip span: {} (after {} bytes of input, {} of {} bytes decoded)", what_, reason, at_,
                      filled_, stream_.size());
  }

  inflate_state& state_;
  ByteView compressed_;
  std::span<std::byte> stream_;
  std::string_view what_;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  std::size_t lent_in_ = 0;
  std::size_t lent_out_ = 0;
};

}  // namespace

struct SpanDecoder::State {
  inflate_state gzip{};
  internal::ZstdDecoder zstd;  // made when first needed
};

SpanDecoder::SpanDecoder() : state_(std::make_unique<State>()) {}
SpanDecoder::~SpanDecoder() = default;
SpanDecoder::SpanDecoder(SpanDecoder&&) noexcept = default;
SpanDecoder& SpanDecoder::operator=(SpanDecoder&&) noexcept = default;

void SpanDecoder::decode_gzip(const GzipSpanInput& input, std::span<std::byte> stream, std::string_view what) {
  if (stream.empty()) return;
  if (input.bits > 7 || (input.member_header && input.bits != 0))
    fail<CorruptData>("{}: gzip span: impossible bit offset {}", what, input.bits);
  if (input.window.size() > kDeflateWindowBytes)
    fail<CorruptData>("{}: gzip span: a window of {} bytes", what, input.window.size());
  if (input.compressed.empty()) fail<CorruptData>("{}: gzip span: no compressed bytes", what);
  GzipSpan span(state_->gzip, input.compressed, stream, what);
  if (input.member_header) {
    span.enter_member();
  } else {
    span.enter_block(input.bits, input.window);
  }
  span.fill();
}

void SpanDecoder::decode_zstd(ByteView compressed, std::span<std::byte> stream, std::string_view what) {
  if (stream.empty()) return;
  if (!state_->zstd) state_->zstd = internal::make_zstd_decoder(kMaxZstdWindowLog);
  auto* decoder = state_->zstd.get();
  ZSTD_DCtx_reset(decoder, ZSTD_reset_session_only);
  ZSTD_inBuffer in{compressed.data(), compressed.size(), 0};
  ZSTD_outBuffer out{stream.data(), stream.size(), 0};
  while (out.pos < out.size) {
    const auto in_before = in.pos;
    const auto out_before = out.pos;
    const auto result = ZSTD_decompressStream(decoder, &out, &in);
    if (ZSTD_isError(result))
      fail<CorruptData>("{}: zstd span: {} (at {} of its input)", what, ZSTD_getErrorName(result), in.pos);
    if (in.pos == in_before && out.pos == out_before) {
      fail<CorruptData>("{}: zstd span: the compressed bytes end before the span does ({} of {} bytes decoded)", what,
                        out.pos, out.size);
    }
  }
}

Bytes compress_zstd(ByteView bytes, int level) {
  Bytes out(ZSTD_compressBound(bytes.size()));
  const auto encoder = internal::make_zstd_encoder();
  const auto size = ZSTD_compressCCtx(encoder.get(), out.data(), out.size(), bytes.data(), bytes.size(), level);
  if (ZSTD_isError(size)) fail<Error>("zstd compression of {} bytes: {}", bytes.size(), ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

Bytes decompress_zstd(ByteView compressed, std::uint64_t limit_bytes, std::string_view what) {
  constexpr std::size_t kStep = 256 * 1024;
  const auto decoder = internal::make_zstd_decoder(kMaxZstdWindowLog);
  Bytes content;
  ZSTD_inBuffer in{compressed.data(), compressed.size(), 0};
  std::size_t filled = 0;
  std::size_t result = 1;  // 0 = a frame has just ended
  while (true) {
    // A stated size is only a hint of how much to take at once; the limit holds whatever it says.
    const auto stated = filled == 0 ? ZSTD_getFrameContentSize(compressed.data(), compressed.size()) : 0;
    const auto wanted = stated != ZSTD_CONTENTSIZE_UNKNOWN && stated != ZSTD_CONTENTSIZE_ERROR ? stated : 0;
    if (wanted > limit_bytes) fail<Unsupported>("{}: zstd: {} bytes exceed the limit of {}", what, wanted, limit_bytes);
    content.resize(filled + (wanted != 0 ? std::min<std::size_t>(wanted, 64 * kStep) : kStep));
    ZSTD_outBuffer out{content.data(), content.size(), filled};
    const auto in_before = in.pos;
    result = ZSTD_decompressStream(decoder.get(), &out, &in);
    if (ZSTD_isError(result)) fail<CorruptData>("{}: zstd: {} (at {})", what, ZSTD_getErrorName(result), in.pos);
    const bool stuck = out.pos == filled && in.pos == in_before;
    filled = out.pos;
    if (filled > limit_bytes)
      fail<Unsupported>("{}: zstd: the content exceeds the limit of {} bytes", what, limit_bytes);
    if (in.pos == in.size && (result == 0 || stuck)) break;
  }
  if (result != 0) fail<CorruptData>("{}: zstd: the data ends in the middle of a frame (at {})", what, in.pos);
  content.resize(filled);
  return content;
}

}  // namespace varve::codec
