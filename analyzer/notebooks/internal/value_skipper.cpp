#include "analyzer/notebooks/internal/value_skipper.h"

#include "analyzer/notebooks/internal/json_bytes.h"

namespace varve::notebooks {

bool ValueSkipper::open(bool object) {
  if (depth_ == kMaxDepth) {
    state_ = State::kTooDeep;
    return false;
  }
  const auto bit = std::uint64_t(1) << (depth_ % 64);
  auto& word = objects_[depth_ / 64];
  word = object ? word | bit : word & ~bit;
  ++depth_;
  state_ = State::kBetween;
  return true;
}

bool ValueSkipper::close(bool object) {
  const bool open_is_object = depth_ != 0 && (objects_[(depth_ - 1) / 64] >> ((depth_ - 1) % 64) & 1) != 0;
  if (depth_ == 0 || open_is_object != object) {
    state_ = State::kMismatch;
    return false;
  }
  state_ = --depth_ == 0 ? State::kDone : State::kBetween;
  return true;
}

const char* ValueSkipper::skip_string(const char* p, const char* end) {
  while ((p = find_string_stop(p, end)) != end) {
    if (*p == '"') {
      state_ = depth_ == 0 ? State::kDone : State::kBetween;
      return p + 1;
    }
    if (end - p == 1) {  // the escaped character comes with the next block
      state_ = State::kEscape;
      return end;
    }
    p += 2;
  }
  return end;
}

const char* ValueSkipper::skip_between(const char* p, const char* end) {
  p = find_structure(p, end);
  if (p == end) return end;
  switch (*p) {
    case '"':
      state_ = State::kString;
      return p + 1;
    case '{':
    case '[':
      return open(*p == '{') ? p + 1 : p;
    default:
      return close(*p == '}') ? p + 1 : p;
  }
}

const char* ValueSkipper::skip(const char* p, const char* end) {
  while (p != end) {
    switch (state_) {
      case State::kBegin:
        if (*p == '"' || *p == '{' || *p == '[') {
          p = skip_between(p, end);
        } else {
          state_ = State::kScalar;
        }
        break;
      case State::kBetween:
        p = skip_between(p, end);
        break;
      case State::kString:
        p = skip_string(p, end);
        break;
      case State::kEscape:
        state_ = State::kString;
        ++p;
        break;
      case State::kScalar:
        while (p != end && *p != ',' && *p != '}' && *p != ']' && !is_json_space(*p)) ++p;
        if (p != end) {
          state_ = State::kDone;
          return p;
        }
        break;
      case State::kDone:
      case State::kTooDeep:
      case State::kMismatch:
        return p;
    }
  }
  return p;
}

}  // namespace varve::notebooks
