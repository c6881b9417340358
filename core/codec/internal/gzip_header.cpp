#include "core/codec/internal/gzip_header.h"

#include <isa-l/crc.h>

namespace varve::codec::internal {
namespace {

constexpr std::uint8_t kHasChecksum = 2, kHasExtra = 4, kHasName = 8, kHasComment = 16, kReserved = 0xe0;
constexpr std::size_t kFixedBytes = 10;

}  // namespace

std::size_t GzipHeaderReader::feed(ByteView bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && step_ != Step::kDone && reason_ == nullptr) take(std::uint8_t(bytes[used++]));
  return used;
}

void GzipHeaderReader::take(std::uint8_t byte) {
  if (step_ != Step::kChecksum) crc_ = crc32_gzip_refl(crc_, &byte, 1);
  switch (step_) {
    case Step::kFixed:
      take_fixed(byte);
      break;
    case Step::kExtraLength:
      number_ |= std::uint32_t(byte) << (8 * at_);
      if (++at_ < 2) break;
      step_ = Step::kExtra;
      at_ = 0;
      if (number_ == 0) go_on(Step::kExtra);
      break;
    case Step::kExtra:
      if (++at_ == number_) go_on(Step::kExtra);
      break;
    case Step::kName:
    case Step::kComment:
      if (byte == 0) go_on(step_);
      break;
    case Step::kChecksum:
      number_ |= std::uint32_t(byte) << (8 * at_);
      if (++at_ < 2) break;
      if (number_ != (crc_ & 0xffff)) reason_ = "the checksum of the header does not match";
      go_on(Step::kChecksum);
      break;
    case Step::kDone:
      break;
  }
}

void GzipHeaderReader::take_fixed(std::uint8_t byte) {
  switch (at_) {
    case 0:
      if (byte != 0x1f) reason_ = "no gzip member begins here";
      break;
    case 1:
      if (byte != 0x8b) reason_ = "no gzip member begins here";
      break;
    case 2:
      if (byte != 8) reason_ = "unknown compression method";
      break;
    case 3:
      flags_ = byte;
      if ((byte & kReserved) != 0) reason_ = "unknown header flags";
      break;
    default:
      break;
  }
  if (++at_ == kFixedBytes) go_on(Step::kFixed);
}

// Enters the next field that the flags announce.
void GzipHeaderReader::go_on(Step after) {
  at_ = 0;
  number_ = 0;
  if (after < Step::kExtraLength && (flags_ & kHasExtra) != 0) {
    step_ = Step::kExtraLength;
  } else if (after < Step::kName && (flags_ & kHasName) != 0) {
    step_ = Step::kName;
  } else if (after < Step::kComment && (flags_ & kHasComment) != 0) {
    step_ = Step::kComment;
  } else if (after < Step::kChecksum && (flags_ & kHasChecksum) != 0) {
    step_ = Step::kChecksum;
  } else {
    step_ = Step::kDone;
  }
}

}  // namespace varve::codec::internal
