#pragma once
// The header of a gzip member (RFC 1952 section 2.3), read as it comes: its optional fields have no limit of length.
#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"

namespace varve::codec::internal {

class GzipHeaderReader {
 public:
  // Takes bytes until the header is complete; returns how many. done() or reason() says why it stopped before the last.
  std::size_t feed(ByteView bytes);
  bool done() const { return step_ == Step::kDone; }
  const char* reason() const { return reason_; }  // nullptr while nothing is wrong

 private:
  enum class Step { kFixed, kExtraLength, kExtra, kName, kComment, kChecksum, kDone };
  void take(std::uint8_t byte);
  void take_fixed(std::uint8_t byte);
  void go_on(Step after);

  Step step_ = Step::kFixed;
  const char* reason_ = nullptr;
  std::uint8_t flags_ = 0;
  std::size_t at_ = 0;        // within the step
  std::uint32_t number_ = 0;  // a field of two bytes in the making
  std::uint32_t crc_ = 0;
};

}  // namespace varve::codec::internal
