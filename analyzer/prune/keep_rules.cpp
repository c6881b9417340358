#include "analyzer/prune/keep_rules.h"

#include <algorithm>
#include <array>
#include <set>

#include "analyzer/prune/internal/carried_files.h"
#include "analyzer/python/name.h"
#include "core/base/errors.h"
#include "core/base/text/calendar.h"
#include "core/base/text/glob.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/toml.h"

namespace varve::prune {
namespace {

constexpr std::array<std::string_view, 12> kGates{"metadata", "elf",  "imports", "replay", "starts",  "listed",
                                                  "scripts",  "cold", "cuda",    "pins",   "rebuild", "tree"};
constexpr std::size_t kMaxPatternBytes = 1024;

std::string said(const TomlValue& rule, std::string_view key, std::string_view what) {
  auto text = toml_string(rule, key, what, true);
  if (text.find_first_not_of(" \t\n") == std::string::npos)
    fail<CorruptData>("{}: '{}' is empty: who reads the plan must know", toml_place(what, rule), key);
  return text;
}

std::int32_t expiry(const TomlValue& rule, std::string_view what) {
  const auto* value = rule.find("expires");
  if (value == nullptr) return 0;
  const bool is_text = value->kind == TomlValue::Kind::kString || value->kind == TomlValue::Kind::kTime;
  if (const auto day = is_text ? parse_day(value->text) : std::nullopt) return *day;
  fail<CorruptData>("{}: 'expires' must be a day like 2026-11-21", toml_place(what, *value));
}

std::vector<std::string> patterns(const TomlValue& rule, std::string_view key, std::string_view what) {
  auto found = toml_strings(rule, key, what);
  for (auto& pattern : found) {
    if (pattern.empty() || pattern.size() > kMaxPatternBytes)
      fail<CorruptData>("{}: '{}' has a pattern of {} bytes; 1 to {} are allowed", toml_place(what, rule), key,
                        pattern.size(), kMaxPatternBytes);
    while (key == "path" && pattern.starts_with('/')) pattern.erase(0, 1);
  }
  return found;
}

KeepRule read_rule(const TomlValue& table, bool veto, std::string_view what) {
  toml_only_keys(table, {"name", "path", "reason", "owner", "expires"}, what);
  KeepRule rule;
  rule.names = patterns(table, "name", what);
  // Patterns meet normalised names, so they are written as people write names.
  for (auto& name : rule.names) name = python::normalize_name(name);
  rule.paths = patterns(table, "path", what);
  if (rule.names.empty() && rule.paths.empty())
    fail<CorruptData>("{}: neither 'name' nor 'path' says what it is about", toml_place(what, table));
  rule.veto = veto;
  rule.reason = said(table, "reason", what);
  rule.owner = said(table, "owner", what);
  rule.expires = expiry(table, what);
  rule.place = toml_place(what, table);
  return rule;
}

WaiverRule read_waiver(const TomlValue& table, std::string_view what) {
  toml_only_keys(table, {"gate", "reason", "owner", "expires"}, what);
  WaiverRule rule;
  rule.waiver = {
      .gate = said(table, "gate", what), .reason = said(table, "reason", what), .owner = said(table, "owner", what)};
  if (std::ranges::find(kGates, rule.waiver.gate) == kGates.end())
    fail<CorruptData>("{}: '{:.60}' is no gate; there are metadata, elf, imports, replay, cuda, pins, rebuild and tree",
                      toml_place(what, table), rule.waiver.gate);
  rule.expires = expiry(table, what);
  rule.place = toml_place(what, table);
  return rule;
}

// The nodes that own a file of the image whose path matches.
std::set<std::uint32_t> owners_of(const std::string& pattern, const Nodes& nodes,
                                  const index::FlatTree::Entries& files) {
  std::set<std::uint32_t> found;
  const auto literal = pattern.substr(0, pattern.find_first_of("*?"));
  for (auto file = files.lower_bound(literal); file != files.end() && file->first.starts_with(literal); ++file) {
    if (file->second.type == FileType::kDirectory || !glob_matches(pattern, file->first)) continue;
    for (const auto owner : nodes.inventory().owners_of_path(file->first)) {
      if (const auto node = nodes.of(owner)) found.insert(*node);
    }
  }
  return found;
}

std::set<std::uint32_t> matched(const KeepRule& rule, const Nodes& nodes, const index::FlatTree::Entries& files) {
  std::set<std::uint32_t> found;
  for (std::uint32_t node = 0; node < nodes.count(); ++node) {
    if (std::ranges::any_of(rule.names,
                            [&](const std::string& pattern) { return glob_matches(pattern, nodes.all()[node].name); }))
      found.insert(node);
  }
  for (const auto& pattern : rule.paths) found.merge(owners_of(pattern, nodes, files));
  return found;
}

bool over(std::int32_t expires, std::int32_t today) { return expires != 0 && today > expires; }

void apply(const KeepRules& rules, bool remark, const Nodes& nodes, const index::FlatTree::Entries& files,
           std::int32_t today, AppliedRules& applied) {
  for (const auto& rule : rules.rules) {
    if (over(rule.expires, today)) {
      applied.remarks.push_back(fmt::format("{} counts no more since {}: \"{}\" ({})", rule.place,
                                            day_text(rule.expires + 1), visible(rule.reason), visible(rule.owner, 60)));
      continue;
    }
    const auto found = matched(rule, nodes, files);
    if (found.empty() && remark)
      applied.remarks.push_back(
          fmt::format("{} matches nothing in this image: \"{}\"", rule.place, visible(rule.reason)));
    for (const auto node : found)
      applied.roots.push_back({.node = node,
                               .reason = {.kind = rule.veto ? "veto" : "keep-rule",
                                          .by = rule.place,
                                          .text = fmt::format("{} ({})", rule.reason, rule.owner)}});
  }
  for (const auto& rule : rules.waivers) {
    if (over(rule.expires, today)) {
      applied.remarks.push_back(
          fmt::format("{} waives {} no more since {}", rule.place, rule.waiver.gate, day_text(rule.expires + 1)));
    } else {
      applied.waivers.push_back(rule.waiver);
    }
  }
}

}  // namespace

KeepRules parse_keep_rules(std::string_view text, std::string_view what) {
  const auto file = parse_toml(text, what);
  toml_only_keys(file, {"keep", "veto", "waive", "consumes"}, what);
  KeepRules rules;
  for (const auto* table : toml_tables(file, "keep", what)) rules.rules.push_back(read_rule(*table, false, what));
  for (const auto* table : toml_tables(file, "veto", what)) rules.rules.push_back(read_rule(*table, true, what));
  for (const auto* table : toml_tables(file, "waive", what)) rules.waivers.push_back(read_waiver(*table, what));
  for (const auto* table : toml_tables(file, "consumes", what)) {
    toml_only_keys(*table, {"group", "by", "reason", "owner"}, what);
    said(*table, "reason", what);
    said(*table, "owner", what);
    rules.consumers.push_back(
        {.group = said(*table, "group", what), .distribution = python::normalize_name(said(*table, "by", what))});
  }
  if (const auto count = rules.rules.size() + rules.waivers.size() + rules.consumers.size(); count > kMaxKeepRules)
    fail<CorruptData>("{}: {} rules, the limit is {}", what, count, kMaxKeepRules);
  return rules;
}

const KeepRules& built_in_keep_rules() {
  static const KeepRules rules =
      parse_keep_rules(embedded_file(internal::rule_files(), "notebook.toml"), "images/keep/notebook.toml");
  return rules;
}

AppliedRules apply_keep_rules(const KeepRules& rules, bool with_built_in, const Nodes& nodes,
                              const index::FlatTree::Entries& files, std::int32_t today) {
  AppliedRules applied;
  if (with_built_in) apply(built_in_keep_rules(), false, nodes, files, today, applied);
  apply(rules, true, nodes, files, today, applied);
  return applied;
}

}  // namespace varve::prune
