// Any tar: whatever is reported must lie inside it and be consistent, and must not depend on how the bytes come.
#include <algorithm>
#include <cstdlib>

#include "core/base/byte_range.h"
#include "core/base/errors.h"
#include "core/codec/tar_parser.h"

namespace {

using namespace varve;
using namespace varve::codec;

void require(bool condition) {
  if (!condition) std::abort();
}

struct Listener final : TarListener {
  void on_entry(TarEntry entry) override {
    require(!open);
    open = true;
    expected_content = entry.data_stream_length;
    content = 0;
    check(entry);
    summary += entry.name + '\0' + entry.link_name + '\0' + std::to_string(entry.size) + ' ' +
               std::to_string(entry.mtime_seconds) + ' ' + std::to_string(entry.data_stream_offset) + ' ' +
               std::to_string(entry.xattrs.size()) + '\n';
  }
  void on_content(ByteView bytes) override {
    require(open);
    content += bytes.size();
    require(content <= expected_content);
  }
  void on_entry_end() override {
    require(open && content == expected_content);
    open = false;
  }

  static void check(const TarEntry& entry) {
    require(!entry.name.empty() && entry.mode <= 07777 && entry.mtime_nanoseconds < 1'000'000'000);
    require(entry.header_stream_offset < entry.data_stream_offset);
    std::uint64_t file_end = 0, stored = 0;
    for (const auto& run : entry.runs) {
      require(run.length != 0 && run.file_offset >= file_end);
      require((ByteRange{run.file_offset, run.length}.fits_in(entry.size)));
      require(run.stream_offset == entry.data_stream_offset + stored);
      file_end = run.file_offset + run.length;
      stored += run.length;
    }
    require(stored == entry.data_stream_length);
  }

  bool open = false;
  std::uint64_t expected_content = 0, content = 0;
  std::string summary;
};

std::string parse(ByteView tar, std::size_t step) {
  Listener listener;
  try {
    TarParser parser("layer", listener);
    for (std::size_t at = 0; at < tar.size(); at += step) parser.feed(tar.subspan(at, std::min(step, tar.size() - at)));
    parser.finish();
    require(!listener.open);
  } catch (const Error& error) {
    listener.summary += error.what();
  }
  return listener.summary;
}

// Changed headers would all fail at their checksums, so these are made right first.
Bytes with_right_checksums(ByteView tar) {
  auto out = to_bytes(tar);
  for (std::size_t at = 0; at + 512 <= out.size(); at += 512) {
    const auto block = std::span(out).subspan(at, 512);
    if (block[257] != std::byte('u') || block[258] != std::byte('s')) continue;
    const auto field = block.subspan(148, 8);
    std::fill(field.begin(), field.end(), std::byte(' '));
    unsigned sum = 0;
    for (const auto byte : block) sum += unsigned(byte);
    for (int digit = 5; digit >= 0; --digit, sum /= 8) field[std::size_t(digit)] = std::byte('0' + sum % 8);
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  const auto tar = (data[0] & 1) != 0 ? with_right_checksums(input) : to_bytes(input);
  require(parse(tar, tar.size() + 1) == parse(tar, 1 + (data[0] >> 1) * 5));
  return 0;
}
