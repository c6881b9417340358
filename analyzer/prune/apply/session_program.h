#pragma once
// Programs of ours that an image's own Python runs in a session: orders as JSON on standard input, answers as lines of
// JSON, the last of which is {"done": true}. The image has a hand in what they say, so nothing of it is believed.
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "analyzer/prune/apply/gates.h"
#include "core/base/text/json_document.h"

namespace varve::prune {

// Calls `take` for each answer. `program` names it in errors: "import". Throws CorruptData, naming the line, for one
// that is no JSON, longer than 16 MiB or behind the last, and if the last is missing.
void each_answer(std::string_view lines, std::string_view program, const std::function<void(const JsonValue&)>& take);

// What the program printed. `python`: its executable, a path of the image; `what` runs, for errors. Throws
// CouldNotRun if it did not end well within the limit, and what the runner throws.
std::string run_in_python(SessionRunner& sessions, const Digest& image, const std::string& python,
                          std::string_view program, const nlohmann::json& orders, std::chrono::seconds limit,
                          std::string_view what);

}  // namespace varve::prune
