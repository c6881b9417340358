#include "cli/image/package_report.h"

#include <algorithm>
#include <ostream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "analyzer/packages/why_installed.h"
#include "cli/base/text.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"

namespace varve::cli {
namespace {

using nlohmann::json;
using packages::Distribution;
using packages::Inventory;

constexpr std::size_t kShownImports = 3;
constexpr std::size_t kShownUnowned = 30;
constexpr std::size_t kShownCreator = 60;
constexpr std::size_t kJsonUnowned = 1000;

std::vector<std::string> texts_of(const std::vector<std::string>& names) {
  std::vector<std::string> texts;
  for (const auto& name : names) texts.push_back(json_name(name));
  return texts;
}

// "0-3, 7" of layer numbers.
std::string ranges_of(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    auto end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (end > i) text += fmt::format("-{}", numbers[end]);
    i = end + 1;
  }
  return text;
}

std::string imports_of(const Distribution& one) {
  std::string text;
  for (std::size_t i = 0; i < std::min(one.imports.size(), kShownImports); ++i)
    text += (i > 0 ? ", " : "") + printable(one.imports[i]);
  if (one.imports.size() > kShownImports) text += fmt::format(", {} more", one.imports.size() - kShownImports);
  return text;
}

std::string remarks_of(const Distribution& one) {
  std::vector<std::string> remarks;
  if (!one.package.empty()) remarks.push_back("as " + printable(one.package));
  if (one.editable) remarks.emplace_back("editable");
  if (!one.vendored_by.empty()) remarks.push_back("inside " + printable(one.vendored_by));
  if (one.gpu) remarks.emplace_back("gpu");
  if (one.missing_files > 0) remarks.push_back(fmt::format("{} files missing", one.missing_files));
  if (one.shared_files > 0)
    remarks.push_back(fmt::format("{} {} shared", one.shared_files, one.shared_files == 1 ? "file" : "files"));
  return fmt::format("{}", fmt::join(remarks, "; "));
}

std::vector<const Distribution*> shown(const Inventory& inventory, const PackageView& view) {
  std::vector<const Distribution*> rows;
  for (const auto& one : inventory.distributions) {
    if (one.vendored_by.empty() || view.vendored) rows.push_back(&one);
  }
  if (view.sort == "size") std::ranges::stable_sort(rows, std::greater(), [](const auto* one) { return one->bytes; });
  return rows;
}

void print_distributions(const Inventory& inventory, const PackageView& view, std::ostream& out) {
  const bool layered = !inventory.layers.empty();
  std::vector<std::vector<std::string>> table{{"NAME", "VERSION", "SOURCE", "SIZE"}};
  if (layered) table[0].insert(table[0].end(), {"COMPRESSED", "LAYERS"});
  table[0].insert(table[0].end(), {"FILES", "IMPORTS", "REMARKS"});
  std::uint64_t count = 0;
  for (const auto* one : shown(inventory, view)) {
    std::vector<std::string> row{printable(one->name), printable(one->version), std::string(source_name(one->source)),
                                 human_bytes(one->bytes)};
    if (layered) row.insert(row.end(), {human_bytes(one->compressed_bytes), ranges_of(one->layers)});
    row.insert(row.end(), {fmt::format("{}", one->files), imports_of(*one), remarks_of(*one)});
    table.push_back(std::move(row));
    ++count;
  }
  print_table(out, table);
  out << fmt::format("\n{} distributions", count);
  if (!inventory.interpreters.empty()) {
    const auto& python = inventory.interpreters.front();
    out << fmt::format("; Python {} is /{}", python.version, printable(python.executable));
    if (inventory.interpreters.size() > 1) out << fmt::format(" ({} more)", inventory.interpreters.size() - 1);
  }
  out << fmt::format("; {} in {} files that none owns\n", human_bytes(inventory.unowned_bytes),
                     inventory.unowned_files);
}

std::string layer_name(const Inventory& inventory, std::uint32_t layer) {
  const auto& creator = layer < inventory.layers.size() ? inventory.layers[layer].created_by : std::string();
  auto text = printable(creator);
  if (text.size() > kShownCreator) text = text.substr(0, kShownCreator) + "...";
  return text;
}

void print_waste(const Inventory& inventory, std::ostream& out) {
  std::uint64_t bytes = 0;
  std::uint64_t compressed = 0;
  std::vector<std::vector<std::string>> table{{"WASTED", "COMPRESSED", "FILES", "LAYER", "WHY", "BY LAYER", "LARGEST"}};
  for (const auto& waste : inventory.waste) {
    bytes += waste.bytes;
    compressed += waste.compressed_bytes;
    table.push_back({human_bytes(waste.bytes), human_bytes(waste.compressed_bytes), fmt::format("{}", waste.files),
                     fmt::format("{}", waste.layer), std::string(why_name(waste.why)),
                     fmt::format("{}", waste.by_layer), printable(waste.example)});
  }
  out << fmt::format("\nwasted: {}, compressed {}\n", human_bytes(bytes), human_bytes(compressed));
  if (table.size() > 1) print_table(out, table);
}

void print_layers(const Inventory& inventory, std::ostream& out) {
  std::vector<std::vector<std::string>> table{{"LAYER", "COMPRESSED", "PACKAGES", "UNOWNED", "WASTED", "MADE BY"}};
  for (std::uint32_t i = 0; i < inventory.layers.size(); ++i) {
    const auto& layer = inventory.layers[i];
    table.push_back({fmt::format("{}", i), human_bytes(layer.compressed_bytes), human_bytes(layer.owned_bytes),
                     human_bytes(layer.unowned_bytes), human_bytes(layer.wasted_bytes), layer_name(inventory, i)});
  }
  out << '\n';
  print_table(out, table);
}

void print_unowned(const Inventory& inventory, std::ostream& out) {
  std::vector<std::vector<std::string>> table{{"UNOWNED", "FILES", "FOLDER"}};
  for (std::size_t i = 0; i < std::min(inventory.unowned.size(), kShownUnowned); ++i) {
    const auto& folder = inventory.unowned[i];
    table.push_back({human_bytes(folder.bytes), fmt::format("{}", folder.files), "/" + printable(folder.path)});
  }
  out << '\n';
  print_table(out, table);
  if (inventory.unowned.size() > kShownUnowned)
    out << fmt::format("and {} more folders (--json has them)\n", inventory.unowned.size() - kShownUnowned);
}

json needs_json(const Distribution& one) {
  auto needs = json::array();
  for (const auto& need : one.needs) {
    needs.push_back({{"name", json_name(need.requirement.name)},
                     {"text", json_name(need.requirement.text)},
                     {"source", source_name(need.from)},
                     {"applies", need.applies},
                     {"extras", texts_of(need.extras)},
                     {"satisfied_by", json_name(need.satisfied_by)},
                     {"compatible", need.compatible}});
  }
  return needs;
}

json distribution_json(const Distribution& one) {
  auto scripts = json::array();
  for (const auto& script : one.scripts)
    scripts.push_back({{"name", json_name(script.name)}, {"target", json_name(script.target)}});
  return {{"name", json_name(one.name)},
          {"normalized", json_name(one.normalized)},
          {"version", json_name(one.version)},
          {"source", source_name(one.source)},
          {"package", json_name(one.package)},
          {"package_version", json_name(one.package_version)},
          {"summary", json_name(one.summary)},
          {"record", json_name(one.record)},
          {"site", json_name(one.site)},
          {"installer", json_name(one.installer)},
          {"requested", one.requested},
          {"editable", one.editable},
          {"vendored_by", json_name(one.vendored_by)},
          {"files", one.files},
          {"bytes", one.bytes},
          {"compressed_bytes", one.compressed_bytes},
          {"shared_files", one.shared_files},
          {"missing_files", one.missing_files},
          {"changed_files", one.changed_files},
          {"layers", one.layers},
          {"imports", texts_of(one.imports)},
          {"top_level", texts_of(one.top_level)},
          {"requires", needs_json(one)},
          {"scripts", std::move(scripts)},
          {"entry_point_groups", texts_of(one.entry_point_groups)},
          {"gpu", one.gpu}};
}

json waste_json(const Inventory& inventory) {
  auto list = json::array();
  for (const auto& waste : inventory.waste)
    list.push_back({{"why", why_name(waste.why)},
                    {"layer", waste.layer},
                    {"by_layer", waste.by_layer},
                    {"files", waste.files},
                    {"bytes", waste.bytes},
                    {"compressed_bytes", waste.compressed_bytes},
                    {"example", json_name(waste.example)}});
  return list;
}

}  // namespace

void print_packages(const Inventory& inventory, const PackageCost& cost, const PackageView& view, std::ostream& out) {
  print_distributions(inventory, view, out);
  std::uint64_t wasted = 0;
  for (const auto& waste : inventory.waste) wasted += waste.compressed_bytes;
  if (!view.waste && wasted > 0)
    out << fmt::format("{} of the layers' {} are wasted on what nobody sees: --waste says why\n", human_bytes(wasted),
                       [&] {
                         std::uint64_t all = 0;
                         for (const auto& layer : inventory.layers) all += layer.compressed_bytes;
                         return human_bytes(all);
                       }());
  if (view.waste) print_waste(inventory, out);
  if (view.layers) print_layers(inventory, out);
  if (view.unowned) print_unowned(inventory, out);
  if (!inventory.layers.empty())
    out << fmt::format("read {} in {:.1f} s{}\n", human_bytes(cost.fetched.bytes), cost.seconds,
                       cost.indexed ? "" : "; `varve index` makes this fast");
}

void print_findings(const std::vector<packages::Finding>& findings, std::ostream& out) {
  for (const auto& finding : findings)
    out << (finding.distribution.empty() ? "" : printable(finding.distribution) + " ") << printable(finding.text)
        << '\n';
  if (findings.empty()) out << "nothing is missing, incompatible or broken\n";
}

void print_why(const Inventory& inventory, const std::string& name, std::ostream& out) {
  for (const auto* one : find_named(inventory, name)) {
    out << fmt::format("{} {} ({}), {} in {} files\n", printable(one->name), printable(one->version),
                       source_name(one->source), human_bytes(one->bytes), one->files);
    if (!one->summary.empty()) out << "  " << printable(one->summary) << '\n';
    if (!one->package.empty())
      out << fmt::format("  came as {} {}\n", printable(one->package), printable(one->package_version));
    if (!one->vendored_by.empty()) out << fmt::format("  a copy inside {}\n", printable(one->vendored_by));
    if (one->requested)
      out << fmt::format("  asked for by name ({})\n",
                         one->installer.empty() ? "REQUESTED" : printable(one->installer));
    for (const auto layer : one->layers) out << fmt::format("  in layer {}: {}\n", layer, layer_name(inventory, layer));
    const auto by = needed_by(inventory, *one);
    for (const auto& needing : by) out << "  needed by " << printable(needing) << '\n';
    if (by.empty()) out << "  needed by nothing else here\n";
    for (const auto& need : one->needs) {
      if (need.applies)
        out << fmt::format("  needs {}{}\n", printable(need.requirement.text),
                           need.satisfied_by.empty() ? ": missing"
                           : need.compatible         ? ""
                                                     : ": not so here");
    }
    if (!one->imports.empty())
      out << fmt::format("  to import: {}\n", printable(fmt::format("{}", fmt::join(one->imports, ", "))));
  }
}

json findings_json(const std::vector<packages::Finding>& findings) {
  auto list = json::array();
  for (const auto& finding : findings)
    list.push_back({{"distribution", json_name(finding.distribution)}, {"text", json_name(finding.text)}});
  return list;
}

json why_json(const Inventory& inventory, const std::string& name) {
  auto list = json::array();
  for (const auto* one : find_named(inventory, name))
    list.push_back({{"name", json_name(one->name)},
                    {"version", json_name(one->version)},
                    {"requested", one->requested},
                    {"needed_by", texts_of(needed_by(inventory, *one))}});
  return list;
}

json packages_json(const Inventory& inventory, const PackageCost& cost) {
  json document{{"packages", json::array()},
                {"layers", json::array()},
                {"interpreters", json::array()},
                {"waste", waste_json(inventory)},
                {"unowned", json::array()}};
  document["image"] = inventory.image ? json(inventory.image->to_string()) : json(nullptr);
  for (const auto& one : inventory.distributions) document["packages"].push_back(distribution_json(one));
  for (const auto& layer : inventory.layers)
    document["layers"].push_back({{"digest", layer.digest.to_string()},
                                  {"compressed_bytes", layer.compressed_bytes},
                                  {"stream_bytes", layer.stream_bytes},
                                  {"created_by", json_name(layer.created_by)},
                                  {"owned_bytes", layer.owned_bytes},
                                  {"unowned_bytes", layer.unowned_bytes},
                                  {"wasted_bytes", layer.wasted_bytes}});
  for (const auto& python : inventory.interpreters)
    document["interpreters"].push_back({{"executable", json_name(python.executable)},
                                        {"version", json_name(python.version)},
                                        {"sites", texts_of(python.sites)}});
  for (std::size_t i = 0; i < std::min(inventory.unowned.size(), kJsonUnowned); ++i)
    document["unowned"].push_back({{"path", json_name(inventory.unowned[i].path)},
                                   {"files", inventory.unowned[i].files},
                                   {"bytes", inventory.unowned[i].bytes}});
  document["unowned_files"] = inventory.unowned_files;
  document["unowned_bytes"] = inventory.unowned_bytes;
  document["problems"] = texts_of(inventory.problems);
  document["indexed"] = cost.indexed;
  document["fetched_bytes"] = cost.fetched.bytes;
  document["requests"] = cost.fetched.requests;
  document["seconds"] = cost.seconds;
  return document;
}

}  // namespace varve::cli
