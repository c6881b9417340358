#pragma once
// Times, hours and the last hours of a series for the eye, in plain text.
#include <span>
#include <string>

#include "gpu/judge.h"

namespace varve::gpu {

struct SparklineStyle {
  std::size_t width = 60;  // columns; the newest hours are shown. One without a run has no column
  bool utf8 = true;        // else ASCII
};

// What the environment says the terminal shows: the first of LC_ALL, LC_CTYPE and LANG that is set and not empty names
// UTF-8.
bool locale_is_utf8();

// One line: a block per hour, as high as its median lies between the lowest shown and the threshold (or what is above
// it). ASCII has eight characters for that.
std::string sparkline(std::span<const Hour> hours, const Judgement& judgement, const SparklineStyle& style = {});

// "7.12 ms", "950 ns", "83.1 s": three digits.
std::string time_text(double seconds);
// "2026-11-21 14:00 UTC".
std::string hour_text(std::int64_t hour);

}  // namespace varve::gpu
