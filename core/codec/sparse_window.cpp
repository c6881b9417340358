// make_window_sparse(): decodes lengths and distances only, and notes which bytes of the window they name.
#include <algorithm>

#include "core/base/errors.h"
#include "core/codec/gzip_walker.h"
#include "core/codec/internal/inflate_block.h"

namespace varve::codec {
namespace {

using internal::BlockHeader;
using internal::BlockKind;

// The input with zeros behind it where it nears its end, as the bit reader needs.
constexpr std::size_t kReadAhead = internal::kMaxBlockHeaderBytes + internal::kInputSlack;

class WindowMarker {
 public:
  WindowMarker(ByteView compressed, std::uint8_t bits, ByteView window)
      : window_(window), sparse_(window.size()), input_(compressed.size() + kReadAhead) {
    if (!compressed.empty()) std::memcpy(input_.data(), compressed.data(), compressed.size());
    end_ = input_.data() + compressed.size();
    reader_.in = input_.data();
    if (bits == 0) return;
    if (bits > 7 || compressed.empty()) fail<CorruptData>("gzip window: impossible bit offset {}", bits);
    reader_.buffer = *reader_.in++ >> (8 - bits);
    reader_.count = bits;
  }

  Bytes run() {
    // Nothing later than this reaches back to the window.
    while (position_ < kDeflateWindowBytes) {
      if (const auto* reason = internal::read_block_header(reader_, block_, tables_)) reject(reason);
      check_not_past_end();
      if (block_.kind == BlockKind::kStored) {
        skip_stored();
      } else {
        mark_symbols();
      }
      if (block_.last) break;
    }
    return std::move(sparse_);
  }

 private:
  void skip_stored() {
    position_ += block_.stored_bytes;
    if (position_ >= kDeflateWindowBytes) return;
    if (block_.stored_bytes > std::size_t(end_ - reader_.in)) reject("it ends too early");
    reader_.in += block_.stored_bytes;
  }

  void mark_symbols() {
    while (position_ < kDeflateWindowBytes) {
      check_not_past_end();
      reader_.refill();
      const auto entry = look_up(block_.tables->litlen, internal::kLitlenBits);
      if ((entry & internal::kLiteral) != 0) {
        reader_.drop(entry & 0xff);
        ++position_;
        continue;
      }
      if ((entry & internal::kBlockEnd) != 0) {
        reader_.drop(entry & 0xff);
        break;
      }
      const auto length = take_value(entry);
      const auto distance = take_value(look_up(block_.tables->distance, internal::kDistanceBits));
      mark(distance, length);
      position_ += length;
    }
    reader_.give_back();
    check_not_past_end();
  }

  // Only what lies before the boundary: bytes after it are made here, whatever they were copied from.
  void mark(std::size_t distance, std::size_t length) {
    if (distance <= position_) return;
    if (distance - position_ > window_.size()) reject("a distance that reaches before the window");
    const auto first = window_.size() - (distance - position_);
    const auto count = std::min(length, window_.size() - first);
    std::copy_n(window_.begin() + std::ptrdiff_t(first), count, sparse_.begin() + std::ptrdiff_t(first));
  }

  template <typename Table>
  std::uint32_t look_up(const Table& table, unsigned table_bits) {
    auto entry = table[reader_.peek(table_bits)];
    if ((entry & internal::kLiteral) == 0 && (entry & internal::kLink) != 0) {
      reader_.drop(entry & 0xff);
      entry = table[(entry >> 16) + reader_.peek(entry >> 8 & 0xf)];
    }
    if ((entry & internal::kLiteral) == 0 && (entry & internal::kInvalid) != 0)
      reject("a code that stands for nothing");
    return entry;
  }

  std::size_t take_value(std::uint32_t entry) {
    const auto code = entry >> 8 & 0xf;
    const auto all = reader_.take(entry & 0xff);
    return (entry >> 16) + (all >> code);
  }

  void check_not_past_end() const {
    const auto* at = reader_.in - (reader_.count >> 3);
    if (at > end_) reject("it ends too early");
  }

  [[noreturn]] void reject(const char* reason) const {
    fail<CorruptData>("gzip window: the compressed bytes after it: {} (at {})", reason,
                      std::min(reader_.in, end_) - input_.data());
  }

  ByteView window_;
  Bytes sparse_;
  std::vector<std::uint8_t> input_;
  const std::uint8_t* end_ = nullptr;
  internal::BitReader reader_;
  BlockHeader block_;
  internal::InflateTables tables_;
  std::size_t position_ = 0;  // decoded bytes so far
};

}  // namespace

Bytes make_window_sparse(ByteView compressed, std::uint8_t bits, ByteView window) {
  if (window.size() > kDeflateWindowBytes) fail<CorruptData>("gzip window: {} bytes", window.size());
  if (window.empty()) return {};
  return std::make_unique<WindowMarker>(compressed, bits, window)->run();
}

}  // namespace varve::codec
