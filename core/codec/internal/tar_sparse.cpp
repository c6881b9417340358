#include "core/codec/internal/tar_sparse.h"

#include <algorithm>

#include "core/base/errors.h"

namespace varve::codec::internal {
namespace {

constexpr std::size_t kNumberLength = 12;
constexpr std::uint64_t kMaxPairs = kMaxPaxBytes / 16;

[[noreturn]] void bad_map(const TarPlace& place, std::string_view reason) {
  fail<CorruptData>("{}: sparse file at {}: {}", place.what, place.stream_offset, reason);
}

}  // namespace

bool append_old_gnu_pairs(ByteView block, bool continuation, SparseMap& map, const TarPlace& place) {
  const std::size_t first = continuation ? 0 : 386;
  const std::size_t count = continuation ? 21 : 4;
  const std::size_t more_at = continuation ? 504 : 482;
  for (std::size_t i = 0; i < count; ++i) {
    const auto pair = block.subspan(first + i * 2 * kNumberLength, 2 * kNumberLength);
    if (pair[0] == std::byte(0)) break;
    map.emplace_back(parse_tar_size(pair.first(kNumberLength), "sparse offset", place),
                     parse_tar_size(pair.last(kNumberLength), "sparse length", place));
  }
  if (map.size() > kMaxPairs)
    fail<Unsupported>("{}: sparse file at {}: more than {} pieces", place.what, place.stream_offset, kMaxPairs);
  return block[more_at] != std::byte(0);
}

PaxSparse pax_sparse_kind(const PaxRecords& records) {
  const auto* major = records.find("GNU.sparse.major");
  if (major != nullptr && *major != "0") return PaxSparse::kInData;
  if (!records.sparse_numbers.empty() || records.find("GNU.sparse.map") != nullptr) return PaxSparse::kInRecords;
  // A file that is one hole has an empty map in formats 0.0 and 0.1.
  return records.find("GNU.sparse.numblocks") != nullptr ? PaxSparse::kInRecords : PaxSparse::kNone;
}

SparseMap sparse_map_of_records(const PaxRecords& records, const TarPlace& place) {
  auto numbers = records.sparse_numbers;
  if (const auto* text = records.find("GNU.sparse.map"); text != nullptr && numbers.empty()) {
    for (std::string_view rest = *text; !rest.empty();) {
      const auto comma = rest.find(',');
      numbers.push_back(parse_pax_number(rest.substr(0, comma), "GNU.sparse.map", place));
      rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    }
  }
  if (numbers.size() % 2 != 0) bad_map(place, "the map ends in the middle of a pair");
  SparseMap map;
  for (std::size_t i = 0; i < numbers.size(); i += 2) map.emplace_back(numbers[i], numbers[i + 1]);
  return map;
}

bool SparseMapReader::feed_block(ByteView block, const TarPlace& place) {
  for (const auto byte : block) {
    const char c = char(byte);
    if (c >= '0' && c <= '9') {
      if (++digits_ > 18) bad_map(place, "a number of the map is too long");
      number_ = number_ * 10 + std::uint64_t(c - '0');
      continue;
    }
    if (c != '\n' || digits_ == 0) bad_map(place, "the map is not made of numbers");
    add_number(number_, place);
    number_ = 0;
    digits_ = 0;
    if (*pairs_ == map_.size() && !offset_) return true;
  }
  return false;
}

void SparseMapReader::add_number(std::uint64_t number, const TarPlace& place) {
  if (!pairs_) {
    if (number > kMaxPairs)
      fail<Unsupported>("{}: sparse file at {}: more than {} pieces", place.what, place.stream_offset, kMaxPairs);
    pairs_ = number;
  } else if (!offset_) {
    offset_ = number;
  } else {
    map_.emplace_back(*offset_, number);
    offset_.reset();
  }
}

std::vector<ContentRun> runs_of(const SparseMap& map, std::uint64_t file_size, std::uint64_t data_stream_offset,
                                std::uint64_t stored_bytes, const TarPlace& place) {
  std::vector<ContentRun> runs;
  std::uint64_t file_end = 0;
  std::uint64_t stored = 0;
  for (const auto& [offset, length] : map) {
    if (offset < file_end) bad_map(place, "pieces overlap or are out of order");
    if (offset > file_size || length > file_size - offset) bad_map(place, "a piece lies outside the file");
    if (length > stored_bytes - stored) bad_map(place, "the map holds more than is stored");
    if (length != 0)
      runs.push_back({.file_offset = offset, .stream_offset = data_stream_offset + stored, .length = length});
    file_end = offset + length;
    stored += length;
  }
  if (stored != stored_bytes) bad_map(place, "more is stored than the map holds");
  return runs;
}

}  // namespace varve::codec::internal
