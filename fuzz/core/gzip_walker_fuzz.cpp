// The gzip walker against zlib: both must accept the same data and decode it to the same bytes, and every boundary must
// be one where decoding can be entered, with the whole window and with the sparse one.
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "core/base/errors.h"
#include "core/codec/gzip_walker.h"
#include "core/codec/span_decoder.h"
#include "testing/codec_support.h"

namespace {

using namespace varve;
using namespace varve::codec;
using namespace varve::codec::test;

void require(bool condition) {
  if (!condition) std::abort();
}

constexpr std::string_view kHeader("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);

// What zlib makes of raw deflate data, and how much of it that took; absent if it is bad or unfinished.
std::optional<std::pair<Bytes, std::size_t>> inflate_raw(ByteView deflated) {
  z_stream stream{};
  require(inflateInit2(&stream, -15) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(deflated.data()));
  stream.avail_in = uInt(deflated.size());
  Bytes out;
  Bytef room[16'384];
  int result = Z_OK;
  while (result == Z_OK) {
    stream.next_out = room;
    stream.avail_out = sizeof room;
    result = inflate(&stream, Z_NO_FLUSH);
    append(out, std::as_bytes(std::span(room, sizeof room - stream.avail_out)));
  }
  const auto used = deflated.size() - stream.avail_in;
  inflateEnd(&stream);
  if (result != Z_STREAM_END) return std::nullopt;
  return std::pair(std::move(out), used);
}

// A member made of any deflate data, with the trailer it should have: else no changed input would get past the CRC.
Bytes member_of(ByteView deflated, ByteView content) {
  Bytes member = to_bytes(as_bytes(kHeader));
  append(member, deflated);
  append_le(member, std::uint32_t(crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size())));
  append_le(member, std::uint32_t(content.size()));
  return member;
}

std::optional<KeepingGzipListener> walk(ByteView blob, std::size_t step) {
  KeepingGzipListener kept;
  try {
    GzipWalker walker("blob", kept);
    feed_in_steps(walker, blob, step);
  } catch (const CorruptData&) {
    return std::nullopt;
  }
  return kept;
}

void check_boundaries(ByteView blob, const KeepingGzipListener& kept) {
  static SpanDecoder decoder;  // used again and again, as a thread does
  const std::size_t stride = kept.boundaries.size() / 8 + 1;
  for (std::size_t i = 0; i < kept.boundaries.size(); i += stride) {
    const auto& at = kept.boundaries[i].boundary;
    const auto from = blob.subspan(at.compressed_offset - (at.bits != 0 ? 1 : 0));
    Bytes rest(std::min<std::size_t>(kept.stream.size() - at.stream_offset, 100'000));
    const auto expect_same = [&](ByteView with_window) {
      decoder.decode_gzip(
          {.compressed = from, .bits = at.bits, .window = with_window, .member_header = at.member_start}, rest, "span");
      require(std::equal(rest.begin(), rest.end(), kept.stream.begin() + std::ptrdiff_t(at.stream_offset)));
    };
    expect_same(kept.boundaries[i].window);
    if (!at.member_start) expect_same(make_window_sparse(from, at.bits, kept.boundaries[i].window));
  }
}

void compare(ByteView blob, std::size_t step, const std::optional<Bytes>& expected) {
  const auto kept = walk(blob, step);
  require(kept.has_value() == expected.has_value());
  if (!kept) return;
  require(kept->stream == *expected);
  check_boundaries(blob, *kept);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t step = 1 + data[0] * 17;
  const bool raw = (data[1] & 1) != 0;
  const auto input = std::as_bytes(std::span(data + 2, size - 2));
  if (!raw) {
    compare(input, step, gunzip(input));
    return 0;
  }
  const auto inflated = inflate_raw(input);
  if (inflated) {
    compare(member_of(input.first(inflated->second), inflated->first), step, inflated->first);
  } else {
    compare(member_of(input, {}), step, std::nullopt);
  }
  return 0;
}
