#include "analyzer/cuda/rules.h"

#include "analyzer/cuda/internal/pattern_set.h"
#include "core/base/embedded.h"
#include "core/base/errors.h"
#include "core/base/text/toml.h"

namespace varve::cuda {

EmbeddedFiles rule_files();  // images/keep/cuda.toml

namespace {

// Each pattern must be one: a bracket that is not closed would otherwise be found only when an image is judged.
std::vector<std::string> patterns(const TomlValue& table, std::string_view key, std::string_view what,
                                  bool required = false) {
  auto list = toml_strings(table, key, what, required);
  const auto* value = table.find(key);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto& at = value->kind == TomlValue::Kind::kArray ? value->array[i] : *value;
    if (list[i].empty() || list[i].starts_with('/'))
      fail<CorruptData>("{}: '{:.200}' in '{}': patterns are not empty and have no leading '/'", toml_place(what, at),
                        list[i], key);
    try {
      internal::alternatives(list[i]);
    } catch (const CorruptData& error) {
      fail<CorruptData>("{}: {}", toml_place(what, at), error.what());
    }
  }
  return list;
}

DlopenEdge dlopen_edge(const TomlValue& row, std::string_view what) {
  toml_only_keys(row, {"opener", "opens", "need", "when"}, what);
  DlopenEdge edge;
  edge.opener = toml_string(row, "opener", what, true);
  edge.opens = patterns(row, "opens", what, true);
  edge.when = patterns(row, "when", what);
  const auto need = toml_string(row, "need", what, true);
  if (need == "required") {
    edge.need = DlopenEdge::Need::kRequired;
  } else if (need == "optional") {
    edge.need = DlopenEdge::Need::kOptional;
  } else if (need == "driver") {
    edge.need = DlopenEdge::Need::kDriver;
  } else {
    fail<CorruptData>("{}: need = '{:.100}' must be \"required\", \"optional\" or \"driver\"",
                      toml_place(what, *row.find("need")), need);
  }
  return edge;
}

}  // namespace

Rules parse_rules(std::string_view toml, std::string_view what) {
  const auto root = parse_toml(toml, what);
  toml_only_keys(root, {"names", "roots", "by_path", "tail", "tail_if", "config_files", "droppable", "dlopen"}, what);
  Rules rules;
  rules.digest = digest_of(toml);
  rules.names = patterns(root, "names", what, true);
  rules.roots = patterns(root, "roots", what, true);
  rules.by_path = patterns(root, "by_path", what);
  rules.tail = patterns(root, "tail", what);
  rules.config_files = patterns(root, "config_files", what);
  rules.droppable = patterns(root, "droppable", what);
  for (const auto* row : toml_tables(root, "tail_if", what)) {
    toml_only_keys(*row, {"if_present", "paths"}, what);
    rules.tail_if.push_back(
        {.if_present = patterns(*row, "if_present", what, true), .paths = patterns(*row, "paths", what, true)});
  }
  for (const auto* row : toml_tables(root, "dlopen", what)) rules.dlopen.push_back(dlopen_edge(*row, what));
  return rules;
}

std::string_view built_in_rules_text() { return embedded_file(rule_files(), "cuda.toml"); }

const Rules& built_in_rules() {
  static const Rules rules = parse_rules(built_in_rules_text(), "images/keep/cuda.toml");
  return rules;
}

}  // namespace varve::cuda
