#include "gpu/probe/report.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "gpu/probe_output.h"

namespace varve::gpu::probe {
namespace {

using nlohmann::json;

// What libraries and the loader say need not be UTF-8.
std::string one_line(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

void Report::step(std::string_view what) { print(one_line({{"doing", what}})); }

void Report::metric(std::string name, MetricKind kind, double seconds) {
  metrics_.push_back({std::move(name), kind, seconds});
}

void Report::fact(std::string name, std::string value) { facts_[std::move(name)] = std::move(value); }

void Report::warn(std::string text) { warnings_.push_back(std::move(text)); }

void Report::fault(std::string text) { faults_.push_back(std::move(text)); }

int Report::end(Outcome outcome, std::string_view said) {
  std::string detail(said);
  if (!faults_.empty()) {
    // What went wrong first, then what the device says of itself; beside a good result that is the news.
    const auto faults = fmt::format("{}", fmt::join(faults_, "; "));
    detail = outcome == Outcome::kFailed ? detail + "; " + faults : faults + "; for the rest: " + detail;
    outcome = Outcome::kFailed;
  }
  static constexpr const char* kResults[] = {"ok", "failed", "skipped"};
  json metrics = json::array();
  for (const auto& metric : metrics_)
    metrics.push_back({{"name", metric.name}, {"kind", to_string(metric.kind)}, {"seconds", metric.seconds}});
  print(one_line({{"result", kResults[static_cast<int>(outcome)]},
                  {"detail", detail},
                  {"metrics", metrics},
                  {"facts", facts_},
                  {"warnings", warnings_},
                  {"throttled", throttled_}}));
  return outcome == Outcome::kOk ? 0 : outcome == Outcome::kFailed ? 1 : 77;
}

void Report::print(const std::string& object) const {
  // A line of its own even if a library left one unfinished on the same pipe.
  const std::string line = "\n" + std::string(kProbeMark) + " " + object + "\n";
  std::size_t at = 0;
  while (at < line.size()) {
    const auto written = ::write(descriptor_, line.data() + at, line.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads any more
    at += static_cast<std::size_t>(written);
  }
}

}  // namespace varve::gpu::probe
