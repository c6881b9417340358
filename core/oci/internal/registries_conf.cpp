#include "core/oci/internal/registries_conf.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/strings.h"
#include "core/base/text/toml.h"

namespace varve::oci::internal {
namespace {

constexpr std::size_t kMaxRegistries = 1000;
constexpr std::size_t kMaxMirrors = 64;

// Without a scheme, as containers have it.
std::string location_of(const TomlValue& table, std::string_view key, const std::string& what) {
  auto text = toml_string(table, key, what);
  while (text.ends_with('/')) text.pop_back();
  const bool bad = text.find("://") != text.npos || text.starts_with('/') || text.find(' ') != text.npos;
  if (bad)
    fail<CorruptData>("{}: {} = \"{:.200}\" must be HOST[:PORT][/PATH], without https://",
                      toml_place(what, *table.find(key)), key, text);
  return text;
}

void note_unknown(const TomlValue& table, const std::vector<std::string_view>& known, const std::string& what) {
  for (const auto& [key, value] : table.table)
    if (std::ranges::find(known, key) == known.end())
      log::warn("{}: '{:.100}' is not known here and does nothing", toml_place(what, value), key);
}

RegistryPlace mirror_of(const TomlValue& table, bool by_digest_only, const std::string& what) {
  note_unknown(table, {"location", "insecure", "pull-from-mirror"}, what);
  RegistryPlace mirror{.location = location_of(table, "location", what),
                       .insecure = toml_flag(table, "insecure", what)};
  if (mirror.location.empty()) fail<CorruptData>("{}: a mirror without location", toml_place(what, table));
  mirror.by_tag = !by_digest_only;
  const auto pull = toml_string(table, "pull-from-mirror", what);
  if (pull.empty()) return mirror;
  const auto place = toml_place(what, *table.find("pull-from-mirror"));
  if (by_digest_only)
    fail<CorruptData>("{}: pull-from-mirror beside mirror-by-digest-only = true: say one of them", place);
  if (pull != "all" && pull != "digest-only" && pull != "tag-only")
    fail<CorruptData>("{}: pull-from-mirror = \"{:.60}\" is not one of all, digest-only, tag-only", place, pull);
  mirror.by_tag = pull != "digest-only";
  mirror.by_digest = pull != "tag-only";
  return mirror;
}

RegistryTable registry_of(const TomlValue& table, const std::string& what) {
  note_unknown(table, {"prefix", "location", "insecure", "blocked", "mirror-by-digest-only", "mirror"}, what);
  RegistryTable registry;
  registry.place = toml_place(what, table);
  registry.prefix = location_of(table, "prefix", what);
  registry.own = {.location = location_of(table, "location", what), .insecure = toml_flag(table, "insecure", what)};
  registry.blocked = toml_flag(table, "blocked", what);
  const bool is_pattern = registry.prefix.starts_with("*.");
  if (registry.prefix.empty()) registry.prefix = registry.own.location;
  if (registry.prefix.empty()) fail<CorruptData>("{}: a registry without prefix and location", registry.place);
  if (registry.prefix.find('*') != registry.prefix.npos &&
      (!is_pattern || registry.prefix.find_first_of("*/", 1) != registry.prefix.npos))
    fail<CorruptData>("{}: prefix = \"{:.200}\": a * may only stand for the first part of a host", registry.place,
                      registry.prefix);
  if (registry.own.location.empty() && !is_pattern) registry.own.location = registry.prefix;
  const bool by_digest_only = toml_flag(table, "mirror-by-digest-only", what);
  for (const auto* mirror : toml_tables(table, "mirror", what))
    registry.mirrors.push_back(mirror_of(*mirror, by_digest_only, what));
  if (registry.mirrors.size() > kMaxMirrors) fail<CorruptData>("{}: more than {} mirrors", registry.place, kMaxMirrors);
  return registry;
}

// "registry.example:5000/team/app:v1", or with @digest: the full name that prefixes are compared with.
std::string full_name(const Reference& reference) {
  auto name = reference.host + "/" + reference.repository;
  if (reference.digest) return name + "@" + reference.digest->to_string();
  return reference.tag ? name + ":" + *reference.tag : name;
}

// How many characters of the name a prefix covers; 0 = none.
std::size_t matched(const std::string& prefix, const Reference& reference) {
  if (prefix.starts_with("*.")) {
    const auto ending = std::string_view(prefix).substr(1);
    return reference.host.size() > ending.size() && reference.host.ends_with(ending) ? reference.host.size() : 0;
  }
  const auto name = full_name(reference);
  if (!name.starts_with(prefix)) return 0;
  const bool at_end = name.size() == prefix.size() || name[prefix.size()] == '/' || name[prefix.size()] == ':' ||
                      name[prefix.size()] == '@';
  // "host" is no prefix of "host:5000/…".
  const bool inside_host = prefix.size() < reference.host.size();
  return at_end && !inside_host ? prefix.size() : 0;
}

}  // namespace

std::vector<RegistryTable> parse_registries_conf(std::string_view text, const std::string& what) {
  const auto root = parse_toml(text, what);
  if (const auto* first_version = root.find("registries"))
    fail<CorruptData>("{}: [registries] is version 1 of the format; write [[registry]] (containers-registries.conf(5))",
                      toml_place(what, *first_version));
  std::vector<RegistryTable> tables;
  for (const auto* table : toml_tables(root, "registry", what)) merge_registries(tables, {registry_of(*table, what)});
  if (tables.size() > kMaxRegistries) fail<CorruptData>("{}: more than {} registries", what, kMaxRegistries);
  return tables;
}

void merge_registries(std::vector<RegistryTable>& into, std::vector<RegistryTable> later) {
  for (auto& table : later) {
    const auto same = std::ranges::find(into, table.prefix, &RegistryTable::prefix);
    if (same != into.end())
      *same = std::move(table);
    else
      into.push_back(std::move(table));
  }
}

const RegistryTable* find_registry(const std::vector<RegistryTable>& tables, const Reference& reference) {
  const RegistryTable* best = nullptr;
  for (const auto& table : tables) {
    if (matched(table.prefix, reference) == 0) continue;
    // A pattern is the weakest: among themselves the longest wins, too.
    const auto weight = [](const RegistryTable& one) {
      return std::pair(!one.prefix.starts_with("*."), one.prefix.size());
    };
    if (best == nullptr || weight(table) > weight(*best)) best = &table;
  }
  return best;
}

std::optional<Source> source_at(const std::string& location, const std::string& prefix, const Reference& reference) {
  const auto covered = matched(prefix, reference);
  if (covered == 0) return std::nullopt;
  auto name = location + full_name(reference).substr(covered);
  // Without tag and digest, which the prefix may have covered.
  const auto repository = name.find('/');
  if (repository == name.npos) return std::nullopt;
  name = name.substr(0, std::min(name.find('@'), name.find(':', repository)));
  try {
    auto there = Reference::parse("docker://" + name);
    if (there.host + "/" + there.repository != name) return std::nullopt;
    return own_source(there, false);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace varve::oci::internal
