#include "analyzer/prune/apply/session_program.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/text/strings.h"

namespace varve::prune {
namespace {

constexpr std::uint64_t kMaxAnswerBytes = 16 << 20;
constexpr std::size_t kMaxReason = 4096;

}  // namespace

void each_answer(std::string_view lines, std::string_view program, const std::function<void(const JsonValue&)>& take) {
  bool done = false;
  for (std::size_t number = 1; !lines.empty(); ++number) {
    const auto end = std::min(lines.find('\n'), lines.size());
    const auto what = fmt::format("the {} program's line {}", program, number);
    const auto line = JsonValue::parse(lines.substr(0, end), what, {.bytes = kMaxAnswerBytes});
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (done) fail<CorruptData>("{} is none of its answers", what);
    done = line.has("done");
    if (!done) take(line);
  }
  if (!done) fail<CorruptData>("the {} program did not come to its end", program);
}

std::string run_in_python(SessionRunner& sessions, const Digest& image, const std::string& python,
                          std::string_view program, const nlohmann::json& orders, std::chrono::seconds limit,
                          std::string_view what) {
  auto result = sessions.run(image, {"/" + python, "-c", std::string(program)},
                             orders.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), limit);
  if (result.timed_out) fail<CouldNotRun>("{} in {} did not end within {} s", what, image.to_string(), limit.count());
  if (result.exit_status != 0)
    fail<CouldNotRun>("/{} in {} ended with status {}: {}", python, image.to_string(), result.exit_status,
                      last_line(result.err).substr(0, kMaxReason));
  return std::move(result.out);
}

}  // namespace varve::prune
