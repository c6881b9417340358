#include "analyzer/prune/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "analyzer/prune/internal/json_fields.h"
#include "core/base/errors.h"
#include "core/base/utf8.h"

namespace varve::prune {
namespace {

using internal::day_value;
using internal::Fields;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kPlanFormat = "varve-plan";
constexpr std::uint64_t kPlanVersion = 1;
constexpr std::array<std::string_view, 4> kVerdictNames{"hot", "watch", "cold", "archived"};

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

Reason read_reason(const Fields& fields) {
  fields.only({"kind", "by", "text"});
  return {.kind = fields.text("kind"), .by = fields.text("by"), .text = fields.text("text")};
}

Verdict read_verdict(const Fields& fields) {
  const auto name = fields.text("verdict");
  const auto found = std::ranges::find(kVerdictNames, name);
  if (found == kVerdictNames.end()) fields.refuse("verdict", "is none of hot, watch, cold, archived");
  return Verdict(found - kVerdictNames.begin());
}

PlannedDistribution read_distribution(const Fields& fields) {
  fields.only({"name", "version", "source", "verdict", "reasons", "bytes", "compressed_bytes",
               "unique_compressed_bytes", "sessions", "users", "users_at_most", "bound", "unused_since", "imports"});
  PlannedDistribution one;
  one.name = fields.text("name");
  if (one.name.empty()) fields.refuse("name", "is empty");
  one.version = fields.text("version");
  one.source = fields.text("source");
  one.verdict = read_verdict(fields);
  fields.each("reasons", [&](const Fields& reason) { one.reasons.push_back(read_reason(reason)); });
  if (one.reasons.empty()) fields.refuse("reasons", "is empty: a verdict says why");
  one.bytes = fields.number("bytes");
  one.compressed_bytes = fields.number("compressed_bytes");
  one.unique_compressed_bytes = fields.number("unique_compressed_bytes");
  one.sessions = fields.number("sessions");
  one.users = {.at_least = fields.number("users"), .at_most = fields.number("users_at_most")};
  one.bound = fields.real("bound", 0, 1);
  one.unused_since = fields.day("unused_since");
  one.imports = fields.texts("imports");
  return one;
}

Forecast read_forecast(const Fields& fields) {
  fields.only(
      {"basis", "sessions", "touching", "expected_rate", "at_most", "held_out_expected", "held_out_seen", "judged"});
  return {.sessions = fields.number("sessions"),
          .touching = fields.number("touching"),
          .expected_rate = fields.real("expected_rate", 0, 1),
          .at_most = fields.real("at_most", 0, 1),
          .held_out_expected = fields.real("held_out_expected", 0, 1),
          .held_out_seen = fields.real("held_out_seen", 0, 1),
          .judged = fields.number("judged"),
          .basis = fields.text("basis")};
}

// One verdict per name and source, in order: what applies the plan looks them up.
void check_order(const Plan& plan, const Fields& fields) {
  const auto key = [](const PlannedDistribution& one) { return std::tie(one.name, one.source); };
  for (std::size_t i = 1; i < plan.verdicts.size(); ++i) {
    if (key(plan.verdicts[i - 1]) == key(plan.verdicts[i]))
      fields.refuse(fmt::format("verdicts[{}].name", i), "is there twice with the same source");
    if (key(plan.verdicts[i - 1]) > key(plan.verdicts[i]))
      fields.refuse(fmt::format("verdicts[{}].name", i), "is out of order (by name, then source)");
  }
}

}  // namespace

std::string_view verdict_name(Verdict verdict) { return kVerdictNames.at(std::size_t(verdict)); }

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
  return document.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Plan parse_plan(std::string_view text, std::string_view what) {
  const auto document = internal::parse_document(text, kMaxPlanBytes, what);
  const Fields fields(document, std::string(what), "");
  if (!fields.has("format") || fields.text("format") != kPlanFormat)
    fail<CorruptData>("{}: not a plan of `varve prune plan`", what);
  if (const auto version = fields.number("version"); version != kPlanVersion)
    fail<Unsupported>("{}: plan version {}; this program reads version {}", what, version, kPlanVersion);
  fields.only({"format", "version", "image", "reference", "window", "made_on", "parameters", "sessions", "cold_bytes",
               "saved_bytes", "affected_users", "forecast", "unsure", "waivers", "verdicts", "affected"});
  Plan plan;
  const auto image = Digest::try_parse(fields.text("image"));
  if (!image) fields.refuse("image", "is no digest like sha256:...");
  plan.image = *image;
  plan.reference = fields.text("reference");
  const auto window = fields.object("window");
  window.only({"first", "last"});
  plan.window = {.first = window.day("first"), .last = window.day("last")};
  plan.made_on = fields.day("made_on");
  plan.parameters = fields.text_map("parameters");
  plan.sessions = fields.number("sessions");
  plan.cold_bytes = fields.number("cold_bytes");
  plan.saved_bytes = fields.number("saved_bytes");
  plan.affected_users = fields.number("affected_users");
  plan.forecast = read_forecast(fields.object("forecast"));
  plan.unsure = fields.texts("unsure");
  fields.each("waivers", [&](const Fields& waiver) {
    waiver.only({"gate", "reason", "owner"});
    plan.waivers.push_back(
        {.gate = waiver.text("gate"), .reason = waiver.text("reason"), .owner = waiver.text("owner")});
    for (const auto* needed : {"gate", "reason", "owner"}) {
      if (waiver.text(needed).empty()) waiver.refuse(needed, "is empty");
    }
  });
  fields.each("verdicts", [&](const Fields& one) { plan.verdicts.push_back(read_distribution(one)); });
  check_order(plan, fields);
  fields.each("affected", [&](const Fields& one) {
    one.only({"path", "users", "distributions"});
    plan.affected.push_back(
        {.path = one.text("path"), .users = one.number("users"), .distributions = one.texts("distributions")});
  });
  return plan;
}

}  // namespace varve::prune
