#include "core/codec/gzip_walker.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "core/codec/internal/gzip_header.h"
#include "core/codec/internal/inflate_block.h"

namespace varve::codec {
namespace {

using internal::BlockHeader;
using internal::BlockKind;
using internal::DecodeStop;
using internal::kInputSlack;
using internal::kMaxBlockHeaderBytes;
using internal::kOutputSlack;

constexpr std::size_t kInputBytes = 128 * 1024;
constexpr std::size_t kOutputBytes = 256 * 1024;  // beside the window
constexpr std::size_t kTrailerBytes = 8;          // CRC32 and ISIZE
// Zeros behind the last byte of the blob let the decoder run on without looking; that it did is found out afterwards.
constexpr std::size_t kEndPadding = kMaxBlockHeaderBytes + kInputSlack;

enum class Step { kMemberStart, kMemberHeader, kBlockHeader, kStored, kCoded, kTrailer, kGarbage };

}  // namespace

class GzipWalker::Impl {
 public:
  Impl(std::string what, GzipListener& listener)
      : what_(std::move(what)),
        listener_(listener),
        input_(kInputBytes + kEndPadding),
        output_(kDeflateWindowBytes + kOutputBytes + kOutputSlack) {
    reader_.in = input_.data();
    out_ = pending_ = unchecked_ = oldest_ = output_.data();
  }

  void feed(ByteView compressed) {
    while (!compressed.empty() && step_ != Step::kGarbage) {
      compressed = compressed.subspan(fill_input(compressed));
      run();
    }
  }

  void finish() {
    final_ = true;
    std::fill_n(input_.data() + filled_, kEndPadding, std::uint8_t(0));
    run();
    if (step_ == Step::kMemberStart && members_ == 0) reject("no gzip member begins here");
    if (step_ != Step::kMemberStart && step_ != Step::kGarbage) reject_end();
    deliver();
  }

  std::uint64_t members() const { return members_; }

 private:
  std::size_t fill_input(ByteView compressed) {
    const auto consumed = std::size_t(reader_.in - input_.data());
    // The shared byte of reader_.in[-1] needs no keeping: its bits are in the reader.
    std::copy(input_.begin() + std::ptrdiff_t(consumed), input_.begin() + std::ptrdiff_t(filled_), input_.begin());
    filled_ -= consumed;
    input_compressed_offset_ += consumed;
    reader_.in = input_.data();
    const auto taken = std::min(compressed.size(), kInputBytes - filled_);
    std::memcpy(input_.data() + filled_, compressed.data(), taken);
    filled_ += taken;
    return taken;
  }

  // Does what the input allows; returns when more is needed or all is done.
  void run() {
    while (advance()) check_not_past_end();
    check_not_past_end();
  }

  bool advance() {
    switch (step_) {
      case Step::kMemberStart:
        return start_member();
      case Step::kMemberHeader:
        return read_member_header();
      case Step::kBlockHeader:
        return read_block();
      case Step::kStored:
        return copy_stored();
      case Step::kCoded:
        return decode_coded();
      case Step::kTrailer:
        return check_trailer();
      case Step::kGarbage:
        return false;
    }
    return false;
  }

  std::size_t available() const { return std::size_t(input_.data() + filled_ - reader_.in); }

  // After the first member `gzip -d` takes what does not begin as a member does for garbage, zeros included, and
  // ignores it to the end.
  bool start_member() {
    if (available() < 2 && !final_) return false;
    if (available() == 0) return false;
    if (members_ > 0 && (available() < 2 || reader_.in[0] != 0x1f || reader_.in[1] != 0x8b)) {
      step_ = Step::kGarbage;
      return false;
    }
    member_compressed_offset_ = compressed_offset();
    header_reader_ = {};
    step_ = Step::kMemberHeader;
    return true;
  }

  bool read_member_header() {
    reader_.in += header_reader_.feed(std::as_bytes(std::span(reader_.in, available())));
    if (header_reader_.reason() != nullptr) reject(header_reader_.reason());
    if (!header_reader_.done()) return false;
    ++members_;
    oldest_ = unchecked_ = out_;
    member_stream_offset_ = stream_offset();
    crc_ = 0;
    report({.compressed_offset = member_compressed_offset_,
            .bits = 0,
            .stream_offset = stream_offset(),
            .member_start = true});
    step_ = Step::kBlockHeader;
    return true;
  }

  bool read_block() {
    if (!final_ && available() < kEndPadding) return false;
    if (!first_block_of_member()) {
      report({.compressed_offset = compressed_offset(),
              .bits = std::uint8_t(reader_.count),
              .stream_offset = stream_offset()});
    }
    if (const auto* reason = internal::read_block_header(reader_, block_, tables_)) reject(reason);
    blocks_of_member_ = true;
    stored_left_ = block_.stored_bytes;
    step_ = block_.kind == BlockKind::kStored ? Step::kStored : Step::kCoded;
    return true;
  }

  bool copy_stored() {
    if (stored_left_ == 0) return end_block();
    if (out_ >= output_limit()) make_room();
    const auto count = std::min({available(), std::size_t(stored_left_), std::size_t(output_limit() - out_)});
    if (count == 0) return false;
    std::memcpy(out_, reader_.in, count);
    reader_.in += count;
    out_ += count;
    stored_left_ -= std::uint32_t(count);
    return true;
  }

  bool decode_coded() {
    if (out_ >= output_limit()) make_room();
    const auto readable = filled_ + (final_ ? kEndPadding : 0);
    if (readable < kInputSlack) return false;
    const char* reason = nullptr;
    switch (internal::decode_symbols(reader_, *block_.tables, input_.data() + (readable - kInputSlack), out_,
                                     output_limit(), oldest_, reason)) {
      case DecodeStop::kInput:
        return false;
      case DecodeStop::kOutput:
        return true;
      case DecodeStop::kBlockEnd:
        return end_block();
      case DecodeStop::kBad:
        break;
    }
    reject(reason);
  }

  bool end_block() {
    step_ = block_.last ? Step::kTrailer : Step::kBlockHeader;
    if (!block_.last) return true;
    reader_.count = 0;  // the rest of the byte is padding
    reader_.buffer = 0;
    return true;
  }

  bool check_trailer() {
    if (available() < kTrailerBytes) return false;
    update_crc();
    const auto* trailer = reinterpret_cast<const std::byte*>(reader_.in);
    if (load_le<std::uint32_t>(trailer) != crc_) reject("the CRC32 of the member does not match its data");
    // ISIZE is the length modulo 2^32.
    if (load_le<std::uint32_t>(trailer + 4) != std::uint32_t(stream_offset() - member_stream_offset_))
      reject("the length of the member does not match its data");
    reader_.in += kTrailerBytes;
    blocks_of_member_ = false;
    step_ = Step::kMemberStart;
    return true;
  }

  void report(const GzipBoundary& boundary) {
    if (!listener_.wants_boundary(boundary.stream_offset)) return;
    deliver();
    const auto window =
        boundary.member_start ? 0 : std::min<std::size_t>(kDeflateWindowBytes, std::size_t(out_ - oldest_));
    listener_.on_boundary(boundary, std::as_bytes(std::span(out_ - window, window)));
  }

  void deliver() {
    update_crc();
    if (out_ == pending_) return;
    const auto bytes = std::as_bytes(std::span(pending_, std::size_t(out_ - pending_)));
    pending_stream_offset_ += bytes.size();
    pending_ = out_;
    listener_.on_stream_bytes(bytes);
  }

  void update_crc() {
    crc_ = crc32_gzip_refl(crc_, unchecked_, std::uint64_t(out_ - unchecked_));
    unchecked_ = out_;
  }

  // Gives away what is decoded and moves the window to the front.
  void make_room() {
    check_not_past_end();
    deliver();
    const auto kept = std::min<std::size_t>(kDeflateWindowBytes, std::size_t(out_ - oldest_));
    std::memmove(output_.data(), out_ - kept, kept);
    oldest_ = output_.data();
    out_ = pending_ = unchecked_ = output_.data() + kept;
  }

  // The decoder may have run into the zeros behind the blob; then nothing that came of it is given away.
  void check_not_past_end() const {
    if (final_ && reader_.in > input_.data() + filled_) reject_end();
  }

  std::uint8_t* output_limit() { return output_.data() + (output_.size() - kOutputSlack); }
  bool first_block_of_member() const { return !blocks_of_member_; }
  std::uint64_t compressed_offset() const {
    return input_compressed_offset_ + std::uint64_t(reader_.in - input_.data());
  }
  std::uint64_t stream_offset() const { return pending_stream_offset_ + std::uint64_t(out_ - pending_); }

  [[noreturn]] void reject(const char* reason) const {
    check_not_past_end();
    fail<CorruptData>("{}: gzip data at {}: {}", what_, compressed_offset(), reason);
  }
  [[noreturn]] void reject_end() const {
    fail<CorruptData>("{}: gzip data at {}: the blob ends in the middle of a member", what_,
                      input_compressed_offset_ + filled_);
  }

  std::string what_;
  GzipListener& listener_;
  Step step_ = Step::kMemberStart;
  bool final_ = false;
  std::uint64_t members_ = 0;

  std::vector<std::uint8_t> input_;
  std::size_t filled_ = 0;
  std::uint64_t input_compressed_offset_ = 0;  // of input_[0]
  internal::BitReader reader_;
  std::uint64_t member_compressed_offset_ = 0;
  internal::GzipHeaderReader header_reader_;
  BlockHeader block_;
  bool blocks_of_member_ = false;  // a block of the current member was read
  std::uint32_t stored_left_ = 0;
  internal::InflateTables tables_;

  std::vector<std::uint8_t> output_;
  std::uint8_t* out_;
  std::uint8_t* pending_;    // first byte not given to the listener
  std::uint8_t* unchecked_;  // first byte not in the CRC
  std::uint8_t* oldest_;     // first byte that may be referred to
  std::uint64_t pending_stream_offset_ = 0;
  std::uint64_t member_stream_offset_ = 0;
  std::uint32_t crc_ = 0;
};

GzipWalker::GzipWalker(std::string what, GzipListener& listener)
    : impl_(std::make_unique<Impl>(std::move(what), listener)) {}
GzipWalker::~GzipWalker() = default;
void GzipWalker::feed(ByteView compressed) { impl_->feed(compressed); }
void GzipWalker::finish() { impl_->finish(); }
std::uint64_t GzipWalker::members() const { return impl_->members(); }

}  // namespace varve::codec
