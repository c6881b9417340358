#include "core/codec/internal/tar_header.h"

#include <algorithm>

#include "core/base/errors.h"

namespace varve::codec::internal {
namespace {

constexpr std::size_t kChecksumAt = 148;
constexpr std::size_t kChecksumLength = 8;

// Writers of the past summed the bytes as signed characters; both sums are accepted.
bool checksum_matches(ByteView block, std::int64_t stated) {
  std::int64_t as_unsigned = 0;
  std::int64_t as_signed = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) {
    const bool in_field = i >= kChecksumAt && i < kChecksumAt + kChecksumLength;
    const auto byte = in_field ? std::uint8_t(' ') : std::uint8_t(block[i]);
    as_unsigned += byte;
    as_signed += std::int8_t(byte);
  }
  return stated == as_unsigned || stated == as_signed;
}

TarDialect dialect_of(ByteView block) {
  const auto magic = as_text(block.subspan(kTarMagicOffset, 8));
  if (magic == std::string_view("ustar  \0", 8)) return TarDialect::kGnu;
  if (magic.substr(0, 6) != std::string_view("ustar\0", 6)) return TarDialect::kV7;
  return as_text(block.subspan(508, 4)) == std::string_view("tar\0", 4) ? TarDialect::kStar : TarDialect::kUstar;
}

std::string name_with_prefix(ByteView block, TarDialect dialect) {
  const auto name = tar_text(block.subspan(0, 100));
  if (dialect != TarDialect::kUstar && dialect != TarDialect::kStar) return std::string(name);
  // star keeps access and change times behind a shorter prefix.
  const auto prefix = tar_text(block.subspan(345, dialect == TarDialect::kStar ? 131 : 155));
  if (prefix.empty()) return std::string(name);
  return std::string(prefix) + "/" + std::string(name);
}

std::int64_t parse_base_256(ByteView field, std::string_view field_name, const TarPlace& place) {
  const bool negative = (std::uint8_t(field[0]) & 0x40) != 0;
  // Bits are collected inverted for negative numbers, so that one overflow check serves both signs.
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < field.size(); ++i) {
    auto byte = std::uint8_t(field[i]);
    if (negative) byte = std::uint8_t(~byte);
    if (i == 0) byte &= 0x7f;
    if (value >> 55 != 0) {
      fail<CorruptData>("{}: tar header at {}: the {} does not fit into 63 bits", place.what, place.stream_offset,
                        field_name);
    }
    value = value << 8 | byte;
  }
  return negative ? -std::int64_t(value) - 1 : std::int64_t(value);
}

std::uint32_t parse_device_number(ByteView field, std::string_view field_name, const TarPlace& place) {
  const auto number = parse_tar_size(field, field_name, place);
  if (number > UINT32_MAX) {
    fail<CorruptData>("{}: tar header at {}: {} {} is out of range", place.what, place.stream_offset, field_name,
                      number);
  }
  return std::uint32_t(number);
}

}  // namespace

bool is_zero_block(ByteView block) {
  return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte(0); });
}

std::string_view tar_text(ByteView field) {
  const auto text = as_text(field);
  return text.substr(0, text.find('\0'));
}

std::int64_t parse_tar_number(ByteView field, std::string_view field_name, const TarPlace& place) {
  if ((std::uint8_t(field[0]) & 0x80) != 0) return parse_base_256(field, field_name, place);
  auto text = as_text(field);
  constexpr std::string_view kPadding(" \0", 2);
  const auto first = text.find_first_not_of(kPadding);
  if (first == text.npos) return 0;
  text = text.substr(first);
  text = text.substr(0, text.find_first_of(kPadding));  // fields are at most 12 long: no overflow below
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '7') {
      fail<CorruptData>("{}: tar header at {}: the {} is not a number", place.what, place.stream_offset, field_name);
    }
    value = value * 8 + (c - '0');
  }
  return value;
}

std::uint64_t parse_tar_size(ByteView field, std::string_view field_name, const TarPlace& place) {
  const auto value = parse_tar_number(field, field_name, place);
  if (value < 0 || std::uint64_t(value) > kMaxTarNumber) {
    fail<CorruptData>("{}: tar header at {}: {} {} is out of range", place.what, place.stream_offset, field_name,
                      value);
  }
  return std::uint64_t(value);
}

TarHeader parse_tar_header(ByteView block, const TarPlace& place) {
  if (!checksum_matches(block, parse_tar_number(block.subspan(kChecksumAt, kChecksumLength), "checksum", place))) {
    fail<CorruptData>("{}: tar header at {}: wrong checksum", place.what, place.stream_offset);
  }
  TarHeader header;
  header.dialect = dialect_of(block);
  header.typeflag = char(block[156]);
  header.name = name_with_prefix(block, header.dialect);
  header.link_name = tar_text(block.subspan(157, 100));
  header.mode = std::uint32_t(parse_tar_number(block.subspan(100, 8), "mode", place)) & 07777;
  header.uid = parse_tar_size(block.subspan(108, 8), "uid", place);
  header.gid = parse_tar_size(block.subspan(116, 8), "gid", place);
  header.size = parse_tar_size(block.subspan(124, 12), "size", place);
  header.mtime_seconds = parse_tar_number(block.subspan(136, 12), "mtime", place);
  if (header.typeflag == '3' || header.typeflag == '4') {
    header.device_major = parse_device_number(block.subspan(329, 8), "device major number", place);
    header.device_minor = parse_device_number(block.subspan(337, 8), "device minor number", place);
  }
  return header;
}

}  // namespace varve::codec::internal
