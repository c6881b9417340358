#include "core/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "core/base/text/units.h"

namespace varve {

ProgressLine::ProgressLine(const Progress& progress, std::string title, bool quiet, ProgressUnit unit)
    : progress_(progress), title_(std::move(title)), unit_(unit) {
  if (quiet || ::isatty(STDERR_FILENO) == 0) return;
  ticker_.emplace(std::chrono::milliseconds(500), [this] { draw(); });
}

ProgressLine::~ProgressLine() {
  if (!ticker_) return;
  ticker_.reset();
  fmt::print(stderr, "\r\x1b[K");
}

void ProgressLine::draw() const {
  const auto done = progress_.done_bytes();
  const auto expected = progress_.expected_bytes();
  const double rate = double(done) / watch_.seconds();
  const auto amount = [&](std::uint64_t count) {
    return unit_ == ProgressUnit::kBytes ? human_bytes(count) : std::to_string(count);
  };
  std::string line = fmt::format("{}: {}", title_, amount(done));
  if (expected > 0) line += fmt::format(" of {} ({}%)", amount(expected), done * 100 / expected);
  if (unit_ == ProgressUnit::kBytes) line += fmt::format(", {}/s", human_bytes(std::uint64_t(rate)));
  if (expected > done && rate > 0) line += fmt::format(", {:.0f} s left", double(expected - done) / rate);
  fmt::print(stderr, "\r\x1b[K{}", line);
  std::fflush(stderr);
}

}  // namespace varve
