#include "testing/tar_support.h"

#include <algorithm>

#include <fmt/format.h>

namespace varve::codec::test {
namespace {

constexpr std::size_t kBlock = 512;

void put(Bytes& block, std::size_t at, std::string_view text) {
  std::copy(as_bytes(text).begin(), as_bytes(text).end(), block.begin() + std::ptrdiff_t(at));
}

std::string pax_record(const std::string& key, const std::string& value) {
  // The length counts its own digits.
  std::size_t length = key.size() + value.size() + 3;
  while (std::to_string(length).size() + key.size() + value.size() + 3 != length) ++length;
  return std::to_string(length) + " " + key + "=" + value + "\n";
}

}  // namespace

std::string octal(std::uint64_t value, std::size_t width) { return fmt::format("{:0{}o}", value, width - 1); }

std::string base_256(std::int64_t value, std::size_t width) {
  std::string field(width, value < 0 ? '\xff' : '\0');
  for (std::size_t i = 0; i < std::min<std::size_t>(8, width); ++i) field[width - 1 - i] = char(value >> (8 * i));
  field[0] = char(field[0] | '\x80');
  return field;
}

TarBuilder& TarBuilder::header(const HeaderFields& fields) {
  Bytes block(kBlock);
  put(block, 0, fields.name);
  put(block, 100, fields.mode);
  put(block, 108, fields.uid);
  put(block, 116, "0000000");
  put(block, 124,
      fields.size < (std::uint64_t(1) << 33) ? octal(fields.size, 12) : base_256(std::int64_t(fields.size), 12));
  put(block, 136, fields.mtime);
  block[156] = std::byte(fields.typeflag);
  put(block, 157, fields.link_name);
  put(block, 257, fields.magic);
  put(block, 329, fields.device_major);
  put(block, 337, fields.device_minor);
  put(block, 345, fields.prefix);
  for (const auto& [at, bytes] : fields.patches) put(block, at, bytes);
  put(block, 148, "        ");
  int sum = 0;
  for (const auto byte : block) sum += fields.signed_checksum ? int(std::int8_t(byte)) : int(std::uint8_t(byte));
  put(block, 148, octal(std::uint64_t(sum), 7) + std::string("\0 ", 2));
  return raw(block);
}

TarBuilder& TarBuilder::data(ByteView bytes) {
  raw(bytes);
  return raw(Bytes((kBlock - bytes.size() % kBlock) % kBlock));
}

TarBuilder& TarBuilder::file(const std::string& name, std::string_view content) {
  return header({.name = name, .size = content.size()}).data(content);
}

TarBuilder& TarBuilder::pax(const std::vector<std::pair<std::string, std::string>>& records, char typeflag) {
  std::string text;
  for (const auto& [key, value] : records) text += pax_record(key, value);
  return header({.name = "PaxHeaders.0/file", .typeflag = typeflag, .size = text.size()}).data(text);
}

TarBuilder& TarBuilder::long_name(char typeflag, const std::string& name) {
  return header({.name = "././@LongLink",
                 .typeflag = typeflag,
                 .size = name.size() + 1,
                 .magic = std::string("ustar  \0", 8)})
      .data(name + '\0');
}

TarBuilder& TarBuilder::raw(ByteView bytes) {
  append(bytes_, bytes);
  return *this;
}

std::vector<KeptEntry> parse_tar(ByteView tar, std::size_t step) {
  KeepingTarListener kept;
  TarParser parser("layer", kept);
  for (std::size_t at = 0; at < tar.size(); at += step) parser.feed(tar.subspan(at, std::min(step, tar.size() - at)));
  parser.finish();
  return std::move(kept.entries);
}

Bytes content_by_runs(ByteView tar, const TarEntry& entry) {
  Bytes content(entry.size);
  for (const auto& run : entry.runs) {
    const auto stored = tar.subspan(run.stream_offset, run.length);
    std::copy(stored.begin(), stored.end(), content.begin() + std::ptrdiff_t(run.file_offset));
  }
  return content;
}

}  // namespace varve::codec::test
