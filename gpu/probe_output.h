#pragma once
// What a step's process says on its standard output. The process runs inside an image, so it is hostile input.
//
// Lines that begin with kProbeMark and a space hold one JSON object each; all other lines are a library's chatter.
// Objects:
//   {"result": "ok" | "failed" | "skipped", "detail": TEXT, "metrics": [{"name": TEXT, "kind": "steady" | "first" |
//   "cold", "seconds": NUMBER}],
//    "facts": {NAME: TEXT}, "warnings": [TEXT], "throttled": BOOL}
// All members but "result" and "detail" may be missing; others are passed over. The last object counts. A step that is
// about to do something that may never end says
//   {"doing": TEXT}
// first, so that a hang can be named. The exit status of the process is 0 for ok, 1 for failed, 77 for skipped; what it
// printed decides if it agrees, else the step failed.
#include <string_view>

#include "gpu/check_result.h"

namespace varve::gpu {

inline constexpr std::string_view kProbeMark = "varve-gpu-probe:";
inline constexpr std::size_t kMaxProbeOutput = 4u << 20;
inline constexpr std::size_t kMaxProbeText = 4096;  // bytes of one text; what is longer is cut
inline constexpr std::size_t kMaxProbeName =
    128;  // of a metric or a fact: letters, digits, "._-+" and, in facts, any other character that prints
inline constexpr std::size_t kMaxProbeMetrics = 200;
inline constexpr std::size_t kMaxProbeFacts = 1000;
inline constexpr std::size_t kMaxProbeWarnings = 100;
inline constexpr double kMaxProbeSeconds = 1e6;

// Never throws on what the process printed: output that makes no sense is a failed step whose detail says what is wrong
// with it. Texts in the result are one line of UTF-8 each, without control characters. `seconds` and what was fetched
// are the caller's to fill in.
StepResult parse_probe_output(std::string_view step, std::string_view output, std::string_view error_output,
                              int exit_status, bool timed_out);

// "ok", "failed", "skipped".
std::string_view to_string(Outcome outcome);

}  // namespace varve::gpu
