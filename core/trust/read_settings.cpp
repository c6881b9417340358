#include "core/trust/read_settings.h"

#include <filesystem>

#include "core/base/errors.h"
#include "core/oci/reference.h"
#include "core/trust/tool_version.h"

namespace varve::trust {
namespace {

constexpr std::size_t kMaxKeys = 64;
constexpr std::size_t kMaxScopes = 1000;

std::string place_of(const TomlValue& table, std::string_view key, const std::string& file) {
  return toml_place(file, *table.find(key));
}

std::optional<IndexRule> rule_of(const TomlValue& table, const std::string& file) {
  if (table.find("index") == nullptr) return std::nullopt;
  const auto text = toml_string(table, "index", file);
  const auto rule = parse_index_rule(text);
  if (!rule)
    fail<CorruptData>("{}: index = \"{:.60}\" is not one of signed, policy, pinned, any",
                      place_of(table, "index", file), text);
  return rule;
}

std::vector<std::filesystem::path> keys_of(const TomlValue& table, const std::string& file) {
  const auto folder = std::filesystem::absolute(file).parent_path();
  std::vector<std::filesystem::path> keys;
  for (const auto& text : toml_strings(table, "keys", file)) keys.push_back((folder / text).lexically_normal());
  if (keys.size() > kMaxKeys) fail<CorruptData>("{}: more than {} keys", place_of(table, "keys", file), kMaxKeys);
  return keys;
}

// As repositories are named in messages, so that a prefix that fits nothing is noticed.
std::string prefix_of(const TomlValue& table, const std::string& file) {
  const auto text = toml_string(table, "prefix", file, true);
  const bool is_folder = text.starts_with("oci:/");
  if (text.empty() || text.find("://") != std::string::npos || text.find('@') != std::string::npos ||
      (text.starts_with("oci:") && !is_folder))
    fail<CorruptData>("{}: prefix = \"{:.100}\" is none: write HOST, HOST/PATH or oci:/FOLDER, without tag or digest",
                      place_of(table, "prefix", file), text);
  return text.size() > 1 && text.ends_with('/') ? text.substr(0, text.size() - 1) : text;
}

TrustScope scope_of(const TomlValue& table, const std::string& file) {
  toml_only_keys(table, {"prefix", "keys", "index"}, file);
  TrustScope scope;
  scope.prefix = prefix_of(table, file);
  scope.keys = keys_of(table, file);
  scope.index = rule_of(table, file);
  scope.place = toml_place(file, table);
  if (scope.keys.empty() && !scope.index)
    fail<CorruptData>("{}: a scope needs keys, or index = ..., or both", scope.place);
  return scope;
}

}  // namespace

void read_trust_settings(const TomlValue& table, const std::string& file, TrustSettings& settings) {
  toml_only_keys(table, {"index", "keys", "scope", "deny", "min-tool", "policy"}, file);
  if (const auto rule = rule_of(table, file)) {
    settings.index = *rule;
    settings.place = place_of(table, "index", file);
  }
  if (table.find("keys") != nullptr) settings.keys = keys_of(table, file);
  if (table.find("scope") != nullptr) {
    settings.scopes.clear();
    for (const auto* one : toml_tables(table, "scope", file)) settings.scopes.push_back(scope_of(*one, file));
    if (settings.scopes.size() > kMaxScopes)
      fail<CorruptData>("{}: more than {} scopes", place_of(table, "scope", file), kMaxScopes);
  }
  for (const auto& text : toml_strings(table, "deny", file)) {
    const auto digest = Digest::try_parse(text);
    if (!digest)
      fail<CorruptData>("{}: deny: '{:.100}' is no digest (sha256:...)", place_of(table, "deny", file), text);
    settings.deny.insert(*digest);
  }
  if (const auto version = toml_string(table, "min-tool", file); !version.empty()) {
    settings.min_tool = version.starts_with("varve ") ? version : "varve " + version;
    if (tool_version(settings.min_tool).empty())
      fail<CorruptData>("{}: min-tool = \"{:.60}\" is no version such as 0.4.2", place_of(table, "min-tool", file),
                        version);
  }
  if (const auto policy = toml_string(table, "policy", file); !policy.empty())
    settings.policy = (std::filesystem::absolute(file).parent_path() / policy).lexically_normal();
}

}  // namespace varve::trust
