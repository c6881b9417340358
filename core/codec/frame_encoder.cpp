#include "core/codec/frame_encoder.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/codec/internal/zstd_handles.h"

namespace varve::codec {
namespace {

constexpr int kGzipWindowBits = 15 + 16;  // + 16: with gzip's header and trailer
constexpr int kGzipMemoryLevel = 8;

std::size_t checked(std::size_t result, std::string_view what) {
  if (ZSTD_isError(result)) fail<Error>("zstd: {}: {}", what, ZSTD_getErrorName(result));
  return result;
}

}  // namespace

std::string encoder_library(FrameFormat format) {
  return format == FrameFormat::kZstd ? fmt::format("libzstd {}", ZSTD_versionString())
                                      : fmt::format("zlib {}", ::zlibVersion());
}

struct FrameEncoder::State {
  State(FrameFormat wanted, int level) : format(wanted) {
    if (format == FrameFormat::kZstd) {
      zstd = internal::make_zstd_encoder();
      checked(ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_compressionLevel, level), "level");
    } else if (::deflateInit2(&gzip, level, Z_DEFLATED, kGzipWindowBits, kGzipMemoryLevel, Z_DEFAULT_STRATEGY) !=
               Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~State() {
    if (format == FrameFormat::kGzip) ::deflateEnd(&gzip);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  FrameFormat format;
  internal::ZstdEncoder zstd;
  z_stream gzip{};
  Bytes room;  // never smaller than it was: a buffer that grows with each frame would be cleared first
};

FrameEncoder::FrameEncoder(FrameFormat format, int level) : state_(std::make_unique<State>(format, level)) {}
FrameEncoder::~FrameEncoder() = default;
FrameEncoder::FrameEncoder(FrameEncoder&&) noexcept = default;
FrameEncoder& FrameEncoder::operator=(FrameEncoder&&) noexcept = default;

void FrameEncoder::encode(ByteView content, Bytes& into) {
  auto& room = state_->room;
  if (state_->format == FrameFormat::kZstd) {
    room.resize(std::max(room.size(), ZSTD_compressBound(content.size())));
    const auto size = checked(
        ZSTD_compress2(state_->zstd.get(), room.data(), room.size(), content.data(), content.size()), "compression");
    return append(into, ByteView(room).first(size));
  }
  auto& gzip = state_->gzip;
  if (content.size() > UINT32_MAX / 2) fail<Unsupported>("gzip: a piece of {} bytes", content.size());
  ::deflateReset(&gzip);
  room.resize(std::max<std::size_t>(room.size(), ::deflateBound(&gzip, uLong(content.size()))));
  gzip.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(content.data()));  // zlib reads only
  gzip.avail_in = uInt(content.size());
  gzip.next_out = reinterpret_cast<Bytef*>(room.data());
  gzip.avail_out = uInt(std::min<std::size_t>(room.size(), UINT32_MAX));
  if (::deflate(&gzip, Z_FINISH) != Z_STREAM_END)
    fail<Error>("gzip: compression of {} bytes did not end", content.size());
  append(into, ByteView(room).first(std::size_t(gzip.next_out - reinterpret_cast<Bytef*>(room.data()))));
}

struct ZstdStreamEncoder::State {
  internal::ZstdEncoder zstd = internal::make_zstd_encoder();
};

ZstdStreamEncoder::ZstdStreamEncoder(int level) : state_(std::make_unique<State>()) {
  checked(ZSTD_CCtx_setParameter(state_->zstd.get(), ZSTD_c_compressionLevel, level), "level");
}
ZstdStreamEncoder::~ZstdStreamEncoder() = default;

void ZstdStreamEncoder::feed(ByteView content) {
  content_bytes_ += content.size();
  ZSTD_inBuffer in{content.data(), content.size(), 0};
  while (in.pos < in.size) {
    const auto before = frame_.size();
    frame_.resize(before + ZSTD_CStreamOutSize());
    ZSTD_outBuffer out{frame_.data(), frame_.size(), before};
    checked(ZSTD_compressStream2(state_->zstd.get(), &out, &in, ZSTD_e_continue), "compression");
    frame_.resize(out.pos);
  }
}

Bytes ZstdStreamEncoder::finish() {
  ZSTD_inBuffer in{nullptr, 0, 0};
  std::size_t left = 1;
  while (left != 0) {
    const auto before = frame_.size();
    frame_.resize(before + ZSTD_CStreamOutSize());
    ZSTD_outBuffer out{frame_.data(), frame_.size(), before};
    left = checked(ZSTD_compressStream2(state_->zstd.get(), &out, &in, ZSTD_e_end), "compression");
    frame_.resize(out.pos);
  }
  return std::move(frame_);
}

}  // namespace varve::codec
