#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace varve::notebooks {

// Finds the end of one JSON value that arrives in blocks. It looks at strings and brackets only: what is passed over
// need not be right in every comma, but its brackets must match. Keeps nothing of the value.
class ValueSkipper {
 public:
  static constexpr std::size_t kMaxDepth = 1024;  // brackets open at once; deeper ones are no notebook's
  enum class State : std::uint8_t { kBegin, kBetween, kString, kEscape, kScalar, kDone, kTooDeep, kMismatch };

  void start() {
    state_ = State::kBegin;
    depth_ = 0;
  }
  // `p` is the first byte of the value in the first block, then the first byte of each next block. Returns the first
  // byte after the value, or the offending byte when it failed, or `end` when the value goes on. The value of a number
  // ends only with the byte after it.
  const char* skip(const char* p, const char* end);

  State state() const { return state_; }
  bool done() const { return state_ == State::kDone; }
  bool failed() const { return state_ == State::kTooDeep || state_ == State::kMismatch; }

 private:
  bool open(bool object);
  bool close(bool object);
  const char* skip_string(const char* p, const char* end);
  const char* skip_between(const char* p, const char* end);

  State state_ = State::kDone;
  std::size_t depth_ = 0;
  std::array<std::uint64_t, kMaxDepth / 64> objects_{};  // one bit per open bracket: '{' or '['
};

}  // namespace varve::notebooks
