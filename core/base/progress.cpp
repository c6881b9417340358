#include "core/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "core/base/clock.h"
#include "core/base/units.h"

namespace varve {

ProgressLine::ProgressLine(const Progress& progress, std::string title, bool quiet)
    : progress_(progress), title_(std::move(title)) {
  if (quiet || ::isatty(STDERR_FILENO) == 0) return;
  thread_ = std::jthread([this](const std::stop_token& stop) {
    const Stopwatch watch;
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, stop, std::chrono::milliseconds(500), [] { return false; }) && !stop.stop_requested())
      draw(watch.seconds());
    fmt::print(stderr, "\r\x1b[K");
  });
}

ProgressLine::~ProgressLine() = default;

void ProgressLine::draw(double seconds) const {
  const auto done = progress_.done_bytes();
  const auto expected = progress_.expected_bytes();
  const double rate = double(done) / seconds;
  std::string line = fmt::format("{}: {}", title_, human_bytes(done));
  if (expected > 0) line += fmt::format(" of {} ({}%)", human_bytes(expected), done * 100 / expected);
  line += fmt::format(", {}/s", human_bytes(std::uint64_t(rate)));
  if (expected > done && rate > 0) line += fmt::format(", {:.0f} s left", double(expected - done) / rate);
  fmt::print(stderr, "\r\x1b[K{}", line);
  std::fflush(stderr);
}

}  // namespace varve
