#pragma once
// When a failed fetch is tried again, and where.
#include <chrono>
#include <exception>
#include <optional>
#include <string>

namespace varve::fuse {

// The attempts made at one object. Not shared between threads.
class Attempts {
 public:
  explicit Attempts(unsigned first_source = 0) : source_(first_source) {}

  // The number of the repository for the next attempt; see SourceList::nth.
  unsigned source() const { return source_; }
  // Counts a failure. Returns how long to wait before the next attempt, or nothing if there should be none: wrong bytes
  // are tried once more and at least once for every copy (a source may have several: its mirrors), a refusal is final
  // for its source, and what may pass is tried for as long as somebody waits.
  std::optional<std::chrono::milliseconds> after(const std::exception_ptr& error, unsigned sources, bool somebody_waits,
                                                 unsigned copies = 0);

 private:
  unsigned source_ = 0;
  unsigned corrupt_ = 0;
  unsigned refused_ = 0;
  unsigned passing_ = 0;
};

// The message of any exception.
std::string message_of(const std::exception_ptr& error);
// The same error with `context: ` before its message.
std::exception_ptr with_context(const std::string& context, const std::exception_ptr& error);

}  // namespace varve::fuse
