#include "analyzer/prune/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "analyzer/report/text.h"
#include "analyzer/report/window.h"
#include "core/base/errors.h"
#include "core/base/text/calendar.h"
#include "core/base/text/json_document.h"
#include "core/base/text/utf8.h"
#include "core/index/merge/flat_tree.h"

namespace varve::prune {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kPlanFormat = "varve-plan";
constexpr std::uint64_t kPlanVersion = 1;
constexpr std::size_t kMaxPlanValues = 8'000'000;
constexpr std::array<std::string_view, 4> kVerdictNames{"hot", "watch", "cold", "archived"};

json day_value(std::int32_t day) { return day == 0 ? json(nullptr) : json(day_text(day)); }

// "2026-11-21"; null is 0.
std::int32_t day_of(const JsonValue& value) {
  if (value.raw().is_null()) return 0;
  const auto day = value.text();
  try {
    return report::parse_window(day + ".." + day, 0).first;
  } catch (const UsageError&) {
    value.refuse("is not a day like 2026-11-21");
  }
}

ordered_json reason_json(const Reason& reason) {
  return {{"kind", reason.kind}, {"by", reason.by}, {"text", reason.text}};
}

// A number that is none would become null, which no reader takes.
double finite(double number) { return std::isfinite(number) ? number : 0; }

ordered_json distribution_json(const PlannedDistribution& one) {
  ordered_json object{
      {"name", one.name}, {"version", one.version}, {"source", one.source}, {"verdict", verdict_name(one.verdict)}};
  object["reasons"] = ordered_json::array();
  for (const auto& reason : one.reasons) object["reasons"].push_back(reason_json(reason));
  object["bytes"] = one.bytes;
  object["compressed_bytes"] = one.compressed_bytes;
  object["unique_compressed_bytes"] = one.unique_compressed_bytes;
  object["sessions"] = one.sessions;
  object["users"] = one.users.at_least;
  object["users_at_most"] = one.users.at_most;
  object["bound"] = finite(one.bound);
  object["unused_since"] = day_value(one.unused_since);
  object["unused_days"] = one.unused_days;
  object["imports"] = one.imports;
  return object;
}

ordered_json forecast_json(const Forecast& forecast) {
  return {{"basis", forecast.basis},
          {"sessions", forecast.sessions},
          {"touching", forecast.touching},
          {"expected_rate", finite(forecast.expected_rate)},
          {"at_most", finite(forecast.at_most)},
          {"held_out_expected", finite(forecast.held_out_expected)},
          {"held_out_seen", finite(forecast.held_out_seen)},
          {"judged", forecast.judged}};
}

Reason read_reason(const JsonValue& fields) {
  fields.only({"kind", "by", "text"});
  return {.kind = fields["kind"].text(), .by = fields["by"].text(), .text = fields["text"].text()};
}

Verdict read_verdict(const JsonValue& fields) {
  const auto name = fields["verdict"].text();
  const auto found = std::ranges::find(kVerdictNames, name);
  if (found == kVerdictNames.end()) fields["verdict"].refuse("is none of hot, watch, cold, archived");
  return Verdict(found - kVerdictNames.begin());
}

PlannedDistribution read_distribution(const JsonValue& fields) {
  fields.only({"name", "version", "source", "verdict", "reasons", "bytes", "compressed_bytes",
               "unique_compressed_bytes", "sessions", "users", "users_at_most", "bound", "unused_since", "unused_days",
               "imports"});
  PlannedDistribution one;
  one.name = fields["name"].text();
  if (one.name.empty()) fields["name"].refuse("is empty");
  one.version = fields["version"].text();
  one.source = fields["source"].text();
  one.verdict = read_verdict(fields);
  for (const auto& reason : fields["reasons"].items()) one.reasons.push_back(read_reason(reason));
  if (one.reasons.empty()) fields["reasons"].refuse("is empty: a verdict says why");
  one.bytes = fields["bytes"].number();
  one.compressed_bytes = fields["compressed_bytes"].number();
  one.unique_compressed_bytes = fields["unique_compressed_bytes"].number();
  one.sessions = fields["sessions"].number();
  one.users = {.at_least = fields["users"].number(), .at_most = fields["users_at_most"].number()};
  one.bound = fields["bound"].real(0, 1);
  one.unused_since = day_of(fields["unused_since"]);
  // Plans of earlier versions of Varve did not count them.
  if (fields.has("unused_days")) one.unused_days = fields["unused_days"].number();
  one.imports = fields["imports"].texts();
  return one;
}

Forecast read_forecast(const JsonValue& fields) {
  fields.only(
      {"basis", "sessions", "touching", "expected_rate", "at_most", "held_out_expected", "held_out_seen", "judged"});
  return {.sessions = fields["sessions"].number(),
          .touching = fields["touching"].number(),
          .expected_rate = fields["expected_rate"].real(0, 1),
          .at_most = fields["at_most"].real(0, 1),
          .held_out_expected = fields["held_out_expected"].real(0, 1),
          .held_out_seen = fields["held_out_seen"].real(0, 1),
          .judged = fields["judged"].number(),
          .basis = fields["basis"].text()};
}

ordered_json gpu_cold_json(const GpuColdFile& file) {
  ordered_json object{{"path", file.path}, {"content", file.content.to_string()}, {"bytes", file.bytes}};
  object["code"] = ordered_json::array();
  for (const auto& one : file.code)
    object["code"].push_back(
        {{"target", one.target}, {"entries", one.entries}, {"bytes", one.bytes}, {"cold", one.cold}});
  object["ranges"] = ordered_json::array();
  for (const auto& range : file.ranges) {
    object["ranges"].push_back(range.offset);
    object["ranges"].push_back(range.length);
  }
  return object;
}

GpuColdFile read_gpu_cold(const JsonValue& fields) {
  fields.only({"path", "content", "bytes", "code", "ranges"});
  GpuColdFile file;
  file.path = fields["path"].text(index::kMaxTreePathBytes);
  if (file.path.empty() || file.path.starts_with('/')) fields["path"].refuse("is no path without leading /");
  file.content = fields["content"].digest();
  file.bytes = fields["bytes"].number();
  for (const auto& one : fields["code"].items(kMaxGpuTargets)) {
    one.only({"target", "entries", "bytes", "cold"});
    file.code.push_back({.target = one["target"].text(),
                         .entries = one["entries"].number(),
                         .bytes = one["bytes"].number(),
                         .cold = one["cold"].flag()});
  }
  const auto numbers = fields["ranges"].items(2 * kMaxGpuRanges);
  if (numbers.empty() || numbers.size() % 2 != 0) fields["ranges"].refuse("is no list of offsets and lengths in turn");
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    const ByteRange range{.offset = numbers[i].number(), .length = numbers[i + 1].number<std::uint64_t>(1)};
    if (!range.fits_in(file.bytes))
      numbers[i].refuse(fmt::format("with its length ends behind the file's {} bytes", file.bytes));
    if (range.offset < end) numbers[i].refuse("lies before the end of the range before");
    end = range.end();
    file.ranges.push_back(range);
  }
  return file;
}

void read_gpu_code(const JsonValue& fields, Plan& plan) {
  plan.gpu_cold_bytes = fields.maybe("gpu_cold_bytes").number();
  std::size_t ranges = 0;
  for (const auto& one : fields.maybe("gpu_cold").items()) {
    auto file = read_gpu_cold(one);
    if (!plan.gpu_cold.empty() && plan.gpu_cold.back().path >= file.path)
      one["path"].refuse("is out of order, or there twice");
    ranges += file.ranges.size();
    if (ranges > kMaxGpuRanges) one["ranges"].refuse(fmt::format("makes it more than {} in all", kMaxGpuRanges));
    plan.gpu_cold.push_back(std::move(file));
  }
}

// One verdict per name and source, in order: what applies the plan looks them up.
void check_order(const Plan& plan, const std::vector<JsonValue>& verdicts) {
  const auto key = [](const PlannedDistribution& one) { return std::tie(one.name, one.source); };
  for (std::size_t i = 1; i < plan.verdicts.size(); ++i) {
    const auto before = key(plan.verdicts[i - 1]), now = key(plan.verdicts[i]);
    if (before == now) verdicts[i]["name"].refuse("is there twice with the same source");
    if (before > now) verdicts[i]["name"].refuse("is out of order (by name, then source)");
  }
}

}  // namespace

std::string_view verdict_name(Verdict verdict) { return kVerdictNames.at(std::size_t(verdict)); }

std::uint64_t GpuColdFile::cold_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& range : ranges) sum += range.length;
  return sum;
}

std::string to_json(const Plan& plan) {
  ordered_json document{{"format", kPlanFormat},
                        {"version", kPlanVersion},
                        {"image", plan.image.to_string()},
                        {"reference", plan.reference},
                        {"window", {{"first", day_value(plan.window.first)}, {"last", day_value(plan.window.last)}}},
                        {"made_on", day_value(plan.made_on)}};
  document["parameters"] = ordered_json::object();
  for (const auto& [name, value] : plan.parameters) document["parameters"][name] = value;
  document["sessions"] = plan.sessions;
  document["cold_bytes"] = plan.cold_bytes;
  document["saved_bytes"] = plan.saved_bytes;
  document["affected_users"] = plan.affected_users;
  document["forecast"] = forecast_json(plan.forecast);
  document["unsure"] = plan.unsure;
  document["waivers"] = ordered_json::array();
  for (const auto& waiver : plan.waivers)
    document["waivers"].push_back({{"gate", waiver.gate}, {"reason", waiver.reason}, {"owner", waiver.owner}});
  document["verdicts"] = ordered_json::array();
  for (const auto& one : plan.verdicts) document["verdicts"].push_back(distribution_json(one));
  document["affected"] = ordered_json::array();
  for (const auto& one : plan.affected)
    document["affected"].push_back({{"path", one.path}, {"users", one.users}, {"distributions", one.distributions}});
  if (!plan.gpu_cold.empty()) {
    document["gpu_cold_bytes"] = plan.gpu_cold_bytes;
    document["gpu_cold"] = ordered_json::array();
    for (const auto& file : plan.gpu_cold) document["gpu_cold"].push_back(gpu_cold_json(file));
  }
  return document.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Plan parse_plan(std::string_view text, std::string_view what) {
  const auto fields = JsonValue::parse(text, what, {.bytes = kMaxPlanBytes, .depth = 16, .values = kMaxPlanValues});
  if (!fields.has("format") || fields["format"].text() != kPlanFormat)
    fail<CorruptData>("{}: not a plan of `varve prune plan`", what);
  if (const auto version = fields["version"].number(); version != kPlanVersion)
    fail<Unsupported>("{}: plan version {}; this program reads version {}", what, version, kPlanVersion);
  fields.only({"format", "version", "image", "reference", "window", "made_on", "parameters", "sessions", "cold_bytes",
               "saved_bytes", "affected_users", "forecast", "unsure", "waivers", "verdicts", "affected",
               "gpu_cold_bytes", "gpu_cold"});
  Plan plan;
  plan.image = fields["image"].digest();
  plan.reference = fields["reference"].text();
  const auto window = fields["window"];
  window.only({"first", "last"});
  plan.window = {.first = day_of(window["first"]), .last = day_of(window["last"])};
  plan.made_on = day_of(fields["made_on"]);
  plan.parameters = fields["parameters"].texts_by_name();
  plan.sessions = fields["sessions"].number();
  plan.cold_bytes = fields["cold_bytes"].number();
  plan.saved_bytes = fields["saved_bytes"].number();
  plan.affected_users = fields["affected_users"].number();
  plan.forecast = read_forecast(fields["forecast"]);
  plan.unsure = fields["unsure"].texts();
  for (const auto& waiver : fields["waivers"].items()) {
    waiver.only({"gate", "reason", "owner"});
    plan.waivers.push_back(
        {.gate = waiver["gate"].text(), .reason = waiver["reason"].text(), .owner = waiver["owner"].text()});
    for (const auto* needed : {"gate", "reason", "owner"})
      if (waiver[needed].text().empty()) waiver[needed].refuse("is empty");
  }
  const auto verdicts = fields["verdicts"].items();
  for (const auto& one : verdicts) plan.verdicts.push_back(read_distribution(one));
  check_order(plan, verdicts);
  for (const auto& one : fields["affected"].items()) {
    one.only({"path", "users", "distributions"});
    plan.affected.push_back(
        {.path = one["path"].text(), .users = one["users"].number(), .distributions = one["distributions"].texts()});
  }
  read_gpu_code(fields, plan);
  return plan;
}

}  // namespace varve::prune
