#include "core/codec/tar_writer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/errors.h"
#include "core/base/text/base64.h"
#include "core/base/text/utf8.h"
#include "core/base/zeros.h"
#include "core/codec/internal/tar_header.h"

namespace varve::codec {
namespace {

// The fields of a header block: offset and length (IEEE 1003.1, ustar Header Block).
struct Field {
  std::size_t offset, length;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12}, kMtime{136, 12},
    kChecksum{148, 8}, kType{156, 1}, kLinkName{157, 100}, kMagic{kTarMagicOffset, 8}, kMajor{329, 8}, kMinor{337, 8},
    kPrefix{345, 155};
constexpr std::uint64_t kMaxSevenDigits = 07777777;  // octal, with the NUL behind it
constexpr std::uint64_t kMaxElevenDigits = 077777777777;

class Header {
 public:
  void text(Field field, std::string_view value) {
    std::ranges::copy(as_bytes(value.substr(0, field.length)), block_.begin() + std::ptrdiff_t(field.offset));
  }
  void octal(Field field, std::uint64_t value) { text(field, fmt::format("{:0{}o}", value, field.length - 1)); }
  // Larger ones than fit as text: base-256, as GNU tar and all readers of today have it.
  void device_number(Field field, std::uint32_t value) {
    if (value <= kMaxSevenDigits) return octal(field, value);
    block_[field.offset] = std::byte(0x80);
    for (std::size_t i = 0; i < 4; ++i) block_[field.offset + field.length - 1 - i] = std::byte(value >> 8 * i);
  }
  ByteView finish() {
    text(kMagic, std::string_view("ustar\0"
                                  "00",
                                  8));
    text(kChecksum, "        ");
    std::uint32_t sum = 0;
    for (const auto byte : block_) sum += std::uint32_t(byte);
    text(kChecksum, fmt::format("{:06o}", sum));
    block_[kChecksum.offset + 6] = std::byte(0);
    return block_;
  }

 private:
  std::array<std::byte, kTarBlock> block_{};
};

// "LENGTH KEY=VALUE\n", where LENGTH counts its own digits too.
void add_record(Bytes& records, std::string_view key, std::string_view value) {
  const auto rest = key.size() + value.size() + 3;
  auto length = rest + 1;
  while (std::to_string(length).size() + rest != length) length = std::to_string(length).size() + rest;
  append(records, as_bytes(fmt::format("{} {}=", length, key)));
  append(records, as_bytes(value));
  append(records, as_bytes("\n"));
}

// Nanoseconds count up from the seconds, also before 1970: -1 s and 500,000,000 ns are written as -0.5.
std::string decimal_time(std::int64_t seconds, std::uint32_t nanoseconds) {
  const bool negative = seconds < 0;
  auto whole = negative ? std::uint64_t(0) - std::uint64_t(seconds) : std::uint64_t(seconds);
  if (negative && nanoseconds != 0) {
    --whole;
    nanoseconds = 1'000'000'000 - nanoseconds;
  }
  auto text = fmt::format("{}{}", negative ? "-" : "", whole);
  if (nanoseconds == 0) return text;
  text += fmt::format(".{:09}", nanoseconds);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c < 0x80; });
}

// Where a name is cut into prefix and name; absent if it cannot be.
std::optional<std::size_t> place_to_split(std::string_view name) {
  if (name.size() > kPrefix.length + 1 + kName.length) return std::nullopt;
  const auto slash = name.find('/', name.size() - kName.length - 1);
  if (slash == name.npos || slash == 0 || slash > kPrefix.length || slash + 1 == name.size()) return std::nullopt;
  return slash;
}

bool fits_in_header(std::string_view name) { return name.size() <= kName.length || place_to_split(name); }

// Readers take bytes of a plain header as they are, so only names that do not fit, or that are text beyond ASCII, need
// a record.
bool needs_record(std::string_view name, bool fits) { return !fits || (!is_ascii(name) && is_utf8(name)); }

void set_name(Header& header, std::string_view name) {
  if (name.size() <= kName.length) return header.text(kName, name);
  if (const auto slash = place_to_split(name)) {
    header.text(kPrefix, name.substr(0, *slash));
    return header.text(kName, name.substr(*slash + 1));
  }
  header.text(kName, name.substr(0, kName.length));
}

void check_name(std::string_view name) {
  if (name.empty() || name.find('\0') != name.npos)
    fail<Unsupported>("a tar cannot hold an entry named '{:.200}'", name);
}

std::string name_of(const TarEntry& entry) {
  auto name = entry.name;
  if (entry.type == FileType::kDirectory && !name.ends_with('/')) name += '/';
  return name;
}

std::string percent_encoded(std::string_view text) {
  std::string encoded;
  for (const unsigned char c : text) {
    if (c > 0x20 && c < 0x7f && c != '=' && c != '%') {
      encoded += char(c);
    } else {
      encoded += fmt::format("%{:02X}", c);
    }
  }
  return encoded;
}

void add_xattrs(Bytes& records, const TarEntry& entry) {
  for (const auto& [name, value] : entry.xattrs) {
    if (name.empty() || name.find('\0') != name.npos)
      fail<Unsupported>("'{:.200}': a tar cannot hold an extended attribute named '{:.200}'", entry.name, name);
    // A record's key ends at its first "=": such a name goes the way of libarchive, which encodes it.
    if (name.find('=') == name.npos) {
      add_record(records, "SCHILY.xattr." + name, value);
    } else {
      add_record(records, "LIBARCHIVE.xattr." + percent_encoded(name), base64_encode(value));
    }
  }
}

// All that ustar cannot say. The order is fixed, since it is part of the layer's digest.
Bytes records_of(const TarEntry& entry, std::string_view name, std::uint64_t stored_bytes) {
  Bytes records;
  const bool path = needs_record(name, fits_in_header(name));
  const bool link_path = needs_record(entry.link_name, entry.link_name.size() <= kLinkName.length);
  if ((path && !is_utf8(name)) || (link_path && !is_utf8(entry.link_name))) add_record(records, "hdrcharset", "BINARY");
  if (path) add_record(records, "path", name);
  if (link_path) add_record(records, "linkpath", entry.link_name);
  if (stored_bytes > kMaxElevenDigits) add_record(records, "size", std::to_string(stored_bytes));
  if (entry.uid > kMaxSevenDigits) add_record(records, "uid", std::to_string(entry.uid));
  if (entry.gid > kMaxSevenDigits) add_record(records, "gid", std::to_string(entry.gid));
  if (entry.mtime_nanoseconds != 0 || entry.mtime_seconds < 0 || std::uint64_t(entry.mtime_seconds) > kMaxElevenDigits)
    add_record(records, "mtime", decimal_time(entry.mtime_seconds, entry.mtime_nanoseconds));
  add_xattrs(records, entry);
  return records;
}

char type_flag(FileType type) {
  switch (type) {
    case FileType::kRegular:
      return '0';
    case FileType::kHardLink:
      return '1';
    case FileType::kSymlink:
      return '2';
    case FileType::kCharDevice:
      return '3';
    case FileType::kBlockDevice:
      return '4';
    case FileType::kDirectory:
      return '5';
    case FileType::kFifo:
      return '6';
  }
  return '0';
}

// A value that does not fit stands in a record; the header has 0 then.
std::uint64_t fitting(std::uint64_t value, std::uint64_t most) { return value <= most ? value : 0; }

void write_records(const TarWriter::Sink& sink, ByteView records) {
  if (records.empty()) return;
  Header header;
  header.text(kName, "././@PaxHeader");
  header.octal(kMode, 0644);
  header.octal(kUid, 0);
  header.octal(kGid, 0);
  header.octal(kSize, records.size());
  header.octal(kMtime, 0);
  header.text(kType, "x");
  header.octal(kMajor, 0);
  header.octal(kMinor, 0);
  sink(header.finish());
  sink(records);
  sink(ByteView(kZeros).first(padding_of(records.size())));
}

}  // namespace

void TarWriter::begin(const TarEntry& entry) {
  end_content();
  const auto name = name_of(entry);
  check_name(name);
  if (entry.link_name.find('\0') != std::string::npos) check_name(entry.link_name);
  const auto stored_bytes = entry.type == FileType::kRegular ? entry.size : 0;
  write_records(sink_, records_of(entry, name, stored_bytes));
  Header header;
  set_name(header, name);
  header.octal(kMode, entry.mode & 07777);
  header.octal(kUid, fitting(entry.uid, kMaxSevenDigits));
  header.octal(kGid, fitting(entry.gid, kMaxSevenDigits));
  header.octal(kSize, fitting(stored_bytes, kMaxElevenDigits));
  header.octal(kMtime, entry.mtime_seconds < 0 ? 0 : fitting(std::uint64_t(entry.mtime_seconds), kMaxElevenDigits));
  header.text(kType, std::string(1, type_flag(entry.type)));
  header.text(kLinkName, entry.link_name);
  const bool device = entry.type == FileType::kCharDevice || entry.type == FileType::kBlockDevice;
  header.device_number(kMajor, device ? entry.device_major : 0);
  header.device_number(kMinor, device ? entry.device_minor : 0);
  sink_(header.finish());
  missing_ = stored_bytes;
  padding_ = padding_of(stored_bytes);
}

void TarWriter::content(ByteView bytes) {
  if (bytes.size() > missing_) throw std::logic_error("more content than the entry announced");
  missing_ -= bytes.size();
  if (!bytes.empty()) sink_(bytes);
}

void TarWriter::end_content() {
  if (missing_ != 0) throw std::logic_error("content of a tar entry is missing");
  if (padding_ != 0) sink_(ByteView(kZeros).first(std::exchange(padding_, 0)));
}

void TarWriter::finish() {
  end_content();
  sink_(ByteView(kZeros).first(2 * kTarBlock));
}

}  // namespace varve::codec
