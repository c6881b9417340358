#pragma once
// Tars made byte by byte, and a listener that keeps what a parser says.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/codec/tar_parser.h"

namespace varve::codec::test {

struct HeaderFields {
  std::string name = "file";
  char typeflag = '0';
  std::string link_name = {};
  std::uint64_t size = 0;
  std::string mode = "0000644";
  std::string uid = "0000000";
  std::string mtime = "00000000000";
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
  std::string device_major = {};
  std::string device_minor = {};
  std::string prefix = {};
  std::vector<std::pair<std::size_t, std::string>> patches = {};  // offset and bytes, before the checksum is made
  bool signed_checksum = false;
};

class TarBuilder {
 public:
  TarBuilder& header(const HeaderFields& fields);
  TarBuilder& data(ByteView bytes);  // with padding
  TarBuilder& data(std::string_view text) { return data(as_bytes(text)); }
  TarBuilder& file(const std::string& name, std::string_view content);
  // An extended header of the given type with these records.
  TarBuilder& pax(const std::vector<std::pair<std::string, std::string>>& records, char typeflag = 'x');
  TarBuilder& long_name(char typeflag, const std::string& name);
  TarBuilder& end() { return raw(Bytes(1024)); }
  TarBuilder& raw(ByteView bytes);
  ByteView bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

// A numeric field in base-256.
std::string base_256(std::int64_t value, std::size_t width);
std::string octal(std::uint64_t value, std::size_t width);

struct KeptEntry {
  TarEntry entry;
  Bytes content;  // as stored
  bool ended = false;
};

struct KeepingTarListener final : TarListener {
  void on_entry(TarEntry entry) override { entries.push_back({std::move(entry), {}, false}); }
  void on_content(ByteView bytes) override { append(entries.back().content, bytes); }
  void on_entry_end() override { entries.back().ended = true; }
  std::vector<KeptEntry> entries;
};

// Parses it in pieces of `step` bytes.
std::vector<KeptEntry> parse_tar(ByteView tar, std::size_t step = 1 << 20);

// The content of a file as it is read, holes as zeros, taken from the tar by its runs.
Bytes content_by_runs(ByteView tar, const TarEntry& entry);

}  // namespace varve::codec::test
