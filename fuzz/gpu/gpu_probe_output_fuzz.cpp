// What a step's process prints, as exit status, output and error output: always a result, whose texts are one line of
// UTF-8 and whose numbers are numbers.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/text/utf8.h"
#include "gpu/probe_output.h"

using namespace varve::gpu;

namespace {

void check_text(std::string_view text) {
  if (text.size() > kMaxProbeText || !varve::is_utf8(text)) std::abort();
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto half = text.find('\x01');
  const auto result = parse_probe_output("step", text.substr(0, half), half == text.npos ? "" : text.substr(half + 1),
                                         data[0], data[1] == '!');
  check_text(result.detail);
  if (result.outcome == Outcome::kOk && (result.exit_status != 0 || result.timed_out)) std::abort();
  if (result.outcome == Outcome::kSkipped && (result.exit_status != 77 || result.timed_out)) std::abort();
  for (const auto& metric : result.metrics)
    if (!std::isfinite(metric.seconds) || metric.seconds < 0 || metric.name.empty() ||
        metric.name.size() > kMaxProbeName)
      std::abort();
  for (const auto& [name, value] : result.facts) check_text(name), check_text(value);
  for (const auto& warning : result.warnings) check_text(warning);
  return 0;
}
