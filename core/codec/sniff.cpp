#include "core/codec/sniff.h"

#include <algorithm>
#include <cstdint>

#include "core/base/errors.h"
#include "core/codec/internal/tar_header.h"
#include "core/codec/zstd_magic.h"

namespace varve::codec {
namespace {

constexpr std::size_t kSkippableHeaderBytes = 8;
// Before that, and in stargz-snapshotter.
constexpr std::string_view kOldChunkedMagic = "GnUlInUx";
constexpr std::uint32_t kChunkedPayloadBytes = 64;
constexpr std::uint32_t kOldChunkedPayloadBytes = 40;

bool is_zstd_magic(std::uint32_t magic) { return magic == kZstdFrameMagic || is_zstd_skippable(magic); }

// Old tars have no magic, so the checksum decides.
bool is_tar_header(ByteView block) {
  if (internal::is_zero_block(block)) return true;
  try {
    internal::parse_tar_header(block, {.what = "blob"});
    return true;
  } catch (const CorruptData&) {
    return false;
  }
}

bool is_skippable_frame(ByteView frame, std::uint32_t payload_bytes, std::string_view ending) {
  const auto* at = frame.data();
  return load_le<std::uint32_t>(at) == kZstdSkippableMagic && load_le<std::uint32_t>(at + 4) == payload_bytes &&
         as_text(frame).ends_with(ending);
}

bool is_lower_hex(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == text.npos; }

// An empty gzip member whose FEXTRA field holds `extra` bytes: header, XLEN, extra, an empty stored block, CRC32 and
// ISIZE of nothing. Absent if it is no such member; what it returns is the extra field.
std::string_view extra_of_empty_member(std::string_view last, std::size_t extra_bytes) {
  constexpr std::size_t kFixed = 12;
  constexpr std::string_view kEmptyBlockAndTrailer("\x01\0\0\xff\xff\0\0\0\0\0\0\0\0", 13);
  const auto whole = kFixed + extra_bytes + kEmptyBlockAndTrailer.size();
  if (last.size() < whole) return {};
  const auto member = last.substr(last.size() - whole);
  const auto length = std::uint8_t(member[10]) | std::size_t(std::uint8_t(member[11])) << 8;
  if (!member.starts_with(std::string_view("\x1f\x8b\x08\x04", 4)) || length != extra_bytes ||
      !member.ends_with(kEmptyBlockAndTrailer))
    return {};
  return member.substr(kFixed, extra_bytes);
}

}  // namespace

Container sniff(ByteView first_bytes) {
  const auto text = as_text(first_bytes);
  if (text.starts_with("\x1f\x8b")) return Container::kGzip;
  if (first_bytes.size() >= 4 && is_zstd_magic(load_le<std::uint32_t>(first_bytes.data()))) return Container::kZstd;
  if (internal::is_zero_block(first_bytes)) return Container::kTar;  // also an empty blob
  if (first_bytes.size() < kSniffBytes) return Container::kUnknown;
  return is_tar_header(first_bytes.first(kTarBlock)) ? Container::kTar : Container::kUnknown;
}

bool has_estargz_footer(ByteView last_bytes) {
  const auto last = as_text(last_bytes);
  // Subfield "SG" of 22 bytes: the table's offset in hex and a word; before 0.5 the same without a subfield; or the
  // table lies elsewhere.
  const auto current = extra_of_empty_member(last, 26);
  if (current.starts_with(std::string_view("SG\x16\0", 4)) && current.ends_with("STARGZ") &&
      is_lower_hex(current.substr(4, 16)))
    return true;
  const auto legacy = extra_of_empty_member(last, 22);
  if (legacy.ends_with("STARGZ") && is_lower_hex(legacy.substr(0, 16))) return true;
  return extra_of_empty_member(last, 21) == std::string_view("SG\x11\0STARGZEXTERNALTOC", 21);
}

bool has_zstd_chunked_footer(ByteView last_bytes) {
  const auto fits = [&](std::uint32_t payload_bytes, std::string_view magic) {
    const auto whole = kSkippableHeaderBytes + payload_bytes;
    return last_bytes.size() >= whole && is_skippable_frame(last_bytes.last(whole), payload_bytes, magic);
  };
  return fits(kChunkedPayloadBytes, kZstdChunkedMagic) || fits(kOldChunkedPayloadBytes, kOldChunkedMagic);
}

}  // namespace varve::codec
