#include "testing/codec_support.h"

#include <zlib.h>

#include <cstdlib>
#include <random>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::codec::test {

Bytes random_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (auto& byte : bytes) byte = std::byte(random());
  return bytes;
}

Bytes text_like_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::string> words(2000);
  for (auto& word : words) {
    for (auto length = 2 + random() % 9; length > 0; --length) word += char('a' + random() % 26);
    word += ' ';
  }
  Bytes bytes;
  // Squaring makes some words far more frequent than others.
  while (bytes.size() < size) {
    const auto pick = random() % words.size();
    append(bytes, as_bytes(words[pick * pick / words.size()]));
  }
  bytes.resize(size);
  return bytes;
}

Bytes program_like_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes;
  std::uint32_t address = random();
  while (bytes.size() < size) {
    switch (random() % 4) {
      case 0:
        for (int i = 0; i < 300; ++i) append_le(bytes, std::uint64_t(address += std::uint32_t(random() % 64) * 8));
        break;
      case 1:
        append(bytes, random_bytes(random() % 4000, random()));
        break;
      case 2:
        bytes.resize(bytes.size() + random() % 20'000);
        break;
      default:
        for (auto length = random() % 3000; length > 0; --length) bytes.push_back(std::byte(random() % 7 * 16));
    }
  }
  bytes.resize(size);
  return bytes;
}

std::vector<std::pair<std::string, Bytes>> sample_contents() {
  return {{"empty", {}},
          {"one byte", Bytes(1, std::byte('x'))},
          {"zeros", Bytes(3'000'000)},
          {"random", random_bytes(500'000)},
          {"text", text_like_bytes(2'000'000)},
          {"program", program_like_bytes(2'000'000)}};
}

Bytes concat(std::initializer_list<ByteView> parts) {
  Bytes all;
  for (const auto part : parts) append(all, part);
  return all;
}

namespace {

class Deflater {
 public:
  Deflater(int level, int strategy, int memory_level) {
    if (deflateInit2(&stream_, level, Z_DEFLATED, 31, memory_level, strategy) != Z_OK) throw std::bad_alloc();
  }
  ~Deflater() { deflateEnd(&stream_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void add(ByteView bytes, int flush, Bytes& out) {
    std::vector<Bytef> room(64 * 1024);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    stream_.avail_in = uInt(bytes.size());
    do {
      stream_.next_out = room.data();
      stream_.avail_out = uInt(room.size());
      deflate(&stream_, flush);
      append(out, std::as_bytes(std::span(room.data(), room.size() - stream_.avail_out)));
    } while (stream_.avail_out == 0);
  }

 private:
  z_stream stream_{};
};

}  // namespace

Bytes gzip(ByteView bytes, int level, int strategy, int memory_level) {
  Bytes out;
  Deflater(level, strategy, memory_level).add(bytes, Z_FINISH, out);
  return out;
}

Bytes gzip_with_flushes(ByteView bytes, std::size_t step, bool full) {
  Bytes out;
  Deflater deflater(6, Z_DEFAULT_STRATEGY, 8);
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    deflater.add(bytes.subspan(at, std::min(step, bytes.size() - at)), full ? Z_FULL_FLUSH : Z_SYNC_FLUSH, out);
  }
  deflater.add({}, Z_FINISH, out);
  return out;
}

std::optional<Bytes> gunzip(ByteView compressed, bool* came_to_end) {
  z_stream stream{};
  if (inflateInit2(&stream, 31) != Z_OK) throw std::bad_alloc();
  Bytes out;
  std::vector<Bytef> room(64 * 1024);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed.data()));
  stream.avail_in = uInt(compressed.size());
  int result = Z_OK;
  while (true) {
    stream.next_out = room.data();
    stream.avail_out = uInt(room.size());
    result = inflate(&stream, Z_NO_FLUSH);
    append(out, std::as_bytes(std::span(room.data(), room.size() - stream.avail_out)));
    const bool member_follows = stream.avail_in >= 2 && stream.next_in[0] == 0x1f && stream.next_in[1] == 0x8b;
    if (result == Z_STREAM_END && member_follows) {
      inflateReset(&stream);
    } else if (result != Z_OK) {
      break;
    }
  }
  inflateEnd(&stream);
  if (came_to_end != nullptr) *came_to_end = result == Z_BUF_ERROR;
  if (result != Z_STREAM_END) return std::nullopt;
  return out;
}

bool have_tool(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}

Bytes run_tool(const std::string& command, ByteView input) {
  const varve::test::TempDir folder;
  write_file_atomically(folder / "in", input);
  const auto line = "cd '" + folder.path().string() + "' && (" + command + ") <in >out";
  if (std::system(line.c_str()) != 0) fail<Error>("{} failed", command);
  return read_file(folder / "out");
}

}  // namespace varve::codec::test
