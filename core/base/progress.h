#pragma once
// Progress of long work: counted from any thread, drawn on one line of a terminal.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/threads/ticker.h"

namespace varve {

// Bytes done of bytes expected, or things. add() is safe from any thread and cheap enough for each buffer.
class Progress {
 public:
  void expect(std::uint64_t bytes) { expected_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void add(std::uint64_t bytes) { done_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  std::uint64_t done_bytes() const { return done_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t expected_bytes() const { return expected_bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> done_bytes_ = 0;
  std::atomic<std::uint64_t> expected_bytes_ = 0;
};

enum class ProgressUnit : std::uint8_t { kBytes, kThings };

// While it lives it redraws `title: bytes, rate, time left` on stderr twice a second; does nothing unless stderr is a
// terminal. `progress` must outlive it.
class ProgressLine {
 public:
  ProgressLine(const Progress& progress, std::string title, bool quiet, ProgressUnit unit = ProgressUnit::kBytes);
  ~ProgressLine();

 private:
  void draw() const;
  const Progress& progress_;
  const std::string title_;
  const ProgressUnit unit_;
  const Stopwatch watch_;
  std::optional<Ticker> ticker_;
};

}  // namespace varve
