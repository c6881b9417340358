#include <nlohmann/json.hpp>

#include "analyzer/report/report.h"
#include "core/base/text/calendar.h"

namespace varve::report {
namespace {

using nlohmann::json;

// Absent is null, never 0.
template <typename Value>
json or_null(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}

// Never is null.
json seen_json(std::int32_t day) { return day == 0 ? json(nullptr) : json(day_text(day)); }

// Names stay whole, so that other programs can look them up; only what is not UTF-8 is replaced, when the document is
// printed.
json counts_json(const std::map<std::string, std::uint64_t>& counts) {
  auto object = json::object();
  for (const auto& [name, count] : counts) object[name] = count;
  return object;
}

json days_json(const std::vector<usage::DayCount>& days) {
  auto object = json::object();
  for (const auto& day : days) object[day_text(day.day)] = day.sessions;
  return object;
}

json use_json(const usage::DistributionUse& use) {
  return {{"name", use.name},
          {"display_name", use.display_name},
          {"sessions", used_in(use)},
          {"users", use.users.at_least},
          {"users_at_most", use.users.at_most},
          {"direct", use.direct},
          {"transitive", use.transitive_only},
          {"named_only", named_only(use)},
          {"files_only", use.files_only},
          {"image_copy", use.image_copy},
          {"session_copy", use.session_copy},
          {"file_sessions", use.file_sessions},
          {"exec_sessions", use.exec_sessions},
          {"static_sessions", use.static_sessions},
          {"notebooks", use.notebooks},
          {"notebooks_optional", use.notebooks_optional},
          {"first_used", seen_json(use.first_used)},
          {"last_used", seen_json(use.last_used)},
          {"importers", counts_json(use.importers)},
          {"modules", counts_json(use.modules)},
          {"shared_with", use.shared_with}};
}

json package_json(const Row& row) {
  auto object = use_json(*row.use);
  // Where nobody could be seen, the counts are not zero but unknown.
  if (row.no_data) {
    for (const auto* count : {"sessions", "users", "users_at_most", "direct", "transitive", "named_only", "files_only",
                              "image_copy", "session_copy"})
      object[count] = nullptr;
  }
  object["bytes"] = row.bytes;
  object["compressed_bytes"] = row.compressed_bytes;
  object["version"] = row.package == nullptr ? json(nullptr) : json(row.package->version);
  object["source"] = row.package == nullptr ? json(nullptr) : json(row.package->source);
  object["images"] = row.use->packages.size();
  object["in_current_image"] = row.in_current > 0;
  object["exposed_sessions"] = row.exposed_sessions;
  object["share"] = or_null(row.share);
  object["bound"] = or_null(row.bound);
  object["trend"] = or_null(row.trend);
  object["trend_word"] = trend_name(row.trend_kind);
  object["last_30"] = or_null(row.last_30);
  object["last_90"] = or_null(row.last_90);
  object["last_365"] = or_null(row.last_365);
  object["no_data"] = row.no_data;
  if (row.no_data) object["no_data_reason"] = row.no_data_reason;
  object["unused"] = row.unused;
  object["could_go"] = row.could_go;
  object["cuda"] = row.cuda;
  object["system"] = row.system;
  object["needed_by"] = row.needed_by;
  object["needed_by_count"] = row.needed_by_count;
  object["disagreements"] = row.disagreements;
  return object;
}

json image_json(const usage::ImageFacts& image) {
  const auto launched = std::max(image.launched, image.heard);
  return {{"image", image.digest == Digest() ? json(nullptr) : json(image.digest.to_string())},
          {"label", image.label},
          {"python", image.python},
          {"packages_known", image.has_inventory},
          {"launched", launched},
          {"heard", image.heard},
          {"surplus", image.surplus},
          {"share", launched == 0 ? json(nullptr) : json(double(image.heard) / double(launched))},
          {"users", image.users.at_least},
          {"users_at_most", image.users.at_most},
          {"gpu",
           {{"sessions", image.gpu_sessions},
            {"used_sessions", image.gpu_used_sessions},
            {"unused_seconds", image.gpu_unused_seconds},
            {"idle_seconds", image.gpu_idle_seconds},
            {"no_gpu_import_sessions", image.gpu_incapable_sessions},
            {"no_gpu_import_seconds", image.gpu_incapable_seconds}}}};
}

json coverage_json(const Report& report) {
  auto images = json::array();
  for (const auto& image : report.snapshot.images) images.push_back(image_json(image));
  return {{"launched", report.launched},
          {"heard", report.heard},
          {"surplus", report.surplus},
          {"share", report.launched == 0 ? json(nullptr) : json(double(report.heard) / double(report.launched))},
          {"users", report.users.at_least},
          {"users_at_most", report.users.at_most},
          {"heard_days", days_json(report.snapshot.heard_days)},
          {"quarantined", report.snapshot.quarantined},
          {"images", std::move(images)}};
}

json sum_json(const UnusedSum& sum) {
  return {{"distributions", sum.distributions}, {"bytes", sum.bytes}, {"compressed_bytes", sum.compressed_bytes}};
}

json failed_json(const usage::FailedImport& failed) {
  return {{"module", failed.module},
          {"sessions", failed.sessions},
          {"users", failed.users.at_least},
          {"users_at_most", failed.users.at_most},
          {"last_day", seen_json(failed.last_day)},
          {"distribution", failed.distribution.empty() ? json(nullptr) : json(failed.distribution)}};
}

json reinstall_json(const usage::Reinstall& reinstall) {
  return {{"name", reinstall.distribution},
          {"from", reinstall.from.empty() ? json(nullptr) : json(reinstall.from)},
          {"to", reinstall.to.empty() ? json(nullptr) : json(reinstall.to)},
          {"why", reinstall.why},
          {"sessions", reinstall.sessions},
          {"users", reinstall.users.at_least},
          {"users_at_most", reinstall.users.at_most}};
}

json gpu_json(const Report& report) {
  auto notebooks = json::array();
  for (const auto& notebook : report.snapshot.notebooks) {
    if (!notebook.imports_gpu_capable) notebooks.push_back(notebook.path);
  }
  const auto& gpu = report.gpu;
  return {{"sessions", gpu.sessions},
          {"used_sessions", gpu.used_sessions},
          {"unused_seconds", gpu.unused_seconds},
          {"idle_seconds", gpu.idle_seconds},
          {"no_gpu_import_sessions", gpu.incapable_sessions},
          {"no_gpu_import_seconds", gpu.incapable_seconds},
          {"notebooks_without_gpu_import", std::move(notebooks)},
          {"models", counts_json(report.snapshot.gpu_models)}};
}

json hint_json(const usage::NotebookHint& hint) {
  return {
      {"notebook", hint.notebook}, {"kind", hint.kind}, {"text", hint.text}, {"cell", hint.cell}, {"line", hint.line}};
}

template <typename Items, typename ToJson>
json list(const Items& items, ToJson&& to_json) {
  auto array = json::array();
  for (const auto& item : items) array.push_back(to_json(item));
  return array;
}

}  // namespace

json report_json(const Report& report, const TableOptions& options) {
  const auto& snapshot = report.snapshot;
  json document{
      {"window", {{"first", day_text(snapshot.window.first)}, {"last", day_text(snapshot.window.last)}}},
      {"by_day_from", day_text(std::max(snapshot.by_day_from, snapshot.window.first))},
      {"made_on", day_text(report.made_on)},
      {"image", snapshot.image ? json(snapshot.image->to_string()) : json(nullptr)},
      {"current_image", report.current ? json(snapshot.images[*report.current].digest.to_string()) : json(nullptr)},
      {"confidence", 0.95}};
  document["packages"] = json::array();
  for (const auto& row : report.rows)
    if (has_row(options, row)) document["packages"].push_back(package_json(row));
  document["coverage"] = coverage_json(report);
  document["unused"] = {{"all", sum_json(report.unused_all)},
                        {"free", sum_json(report.free)},
                        {"out_of", report.known},
                        {"packages", report.packages}};
  document["failed"] = list(snapshot.failed, failed_json);
  document["reinstalls"] = list(snapshot.reinstalls, reinstall_json);
  document["unresolved"] = counts_json(snapshot.unresolved);
  document["gpu"] = gpu_json(report);
  document["hints"] = list(snapshot.hints, hint_json);
  document["notebooks"] = {{"scanned", snapshot.notebooks_scanned}, {"distinct", snapshot.notebooks_distinct}};
  document["hidden"] = {{"names", report.hidden_names},
                        {"failed_names", snapshot.hidden_failed_names},
                        {"min_sessions", report.options.min_sessions}};
  return document;
}

json explanation_json(const usage::Explanation& explanation) {
  json document{{"asked", explanation.asked}, {"distributions", explanation.distributions}};
  document["use"] = list(explanation.use, [](const usage::DistributionUse& use) {
    auto object = use_json(use);
    object["days"] = days_json(use.days);
    object["packages"] = list(use.packages, [](const usage::PackageFacts& package) {
      return json{{"image", package.image.to_string()},
                  {"version", package.version},
                  {"source", package.source},
                  {"files", package.files},
                  {"bytes", package.bytes},
                  {"compressed_bytes", package.compressed_bytes},
                  {"layers", package.layers},
                  {"imports", package.imports},
                  {"requires", package.required},
                  {"gpu", package.gpu}};
    });
    return object;
  });
  document["failed"] = list(explanation.failed, failed_json);
  document["evidence"] = list(explanation.evidence, [](const usage::Evidence& evidence) {
    return json{{"kind", evidence.kind},
                {"day", seen_json(evidence.day)},
                {"image", evidence.image ? json(evidence.image->to_string()) : json(nullptr)},
                {"count", evidence.count},
                {"detail", evidence.detail}};
  });
  document["images"] = list(explanation.images, image_json);
  return document;
}

}  // namespace varve::report
