#pragma once
// What a step's process says on its standard output. The process runs inside an image, so it is hostile input.
//
// Lines that begin with kProbeMark and a space hold one JSON object each; all other lines are a library's chatter. Objects:
//   {"result": "ok" | "failed" | "skipped", "detail": TEXT, "metrics": [{"name": TEXT, "kind": "steady" | "first" | "cold", "seconds": NUMBER}],
//    "facts": {NAME: TEXT}, "warnings": [TEXT], "throttled": BOOL}
// All members but "result" and "detail" may be missing. The last object counts. A step that is about to do something that may never end says
//   {"doing": TEXT}
// first, so that a hang can be named. The exit status of the process is 0 for ok, 1 for failed, 77 for skipped; what it printed decides if it agrees, else the step failed.
#include <string_view>

#include "gpu/check_result.h"

namespace varve::gpu {

inline constexpr std::string_view kProbeMark = "varve-gpu-probe:";
inline constexpr std::size_t kMaxProbeOutput = 4u << 20;

// Never throws on what the process printed: output that makes no sense is a failed step whose detail says what is wrong with it.
StepResult parse_probe_output(std::string_view step, std::string_view output, std::string_view error_output, int exit_status, bool timed_out);

}  // namespace varve::gpu
