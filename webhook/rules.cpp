#include "webhook/rules.h"

#include <algorithm>

#include "core/base/bytes.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/glob.h"
#include "core/base/text/strings.h"
#include "core/base/text/toml.h"

namespace varve::webhook {
namespace {

constexpr const char* kUsualAddress = "127.0.0.1:8085";
constexpr std::uint64_t kMaxSecretBytes = 4096;

bool any_matches(const std::vector<std::string>& patterns, std::string_view text) {
  return std::ranges::any_of(patterns, [&](const auto& pattern) { return glob_matches(pattern, text); });
}

class Reader {
 public:
  Reader(const TomlValue& root, const std::filesystem::path& file) : root_(root), file_(file), what_(file.string()) {}

  Settings read(const std::optional<std::string>& listen) const {
    toml_only_keys(
        root_,
        {"registry", "listen", "secret-file", "queue", "workers", "sweep-seconds", "lease-seconds", "limit-seconds",
         "retry-seconds", "attempts", "max-queued", "address-connections", "address-images", "rule"},
        what_);
    Settings settings;
    settings.registry = toml_string(root_, "registry", what_, true);
    check_registry(settings);
    const auto address = toml_string(root_, "listen", what_);
    settings.listen = ListenAddress::parse(listen ? *listen : address.empty() ? kUsualAddress : address);
    settings.secret = read_secret();
    settings.queue = toml_string(root_, "queue", what_);
    if (const bool is_file = !settings.queue.empty() && settings.queue.find("://") == std::string::npos; is_file)
      settings.queue = path(settings.queue);
    settings.workers = unsigned(number("workers", 1, 64, settings.workers));
    settings.sweep = seconds("sweep-seconds", 0, settings.sweep);
    settings.lease = seconds("lease-seconds", 2, settings.lease);
    settings.limit = seconds("limit-seconds", 1, settings.limit);
    settings.first_wait = seconds("retry-seconds", 1, settings.first_wait);
    settings.attempts = unsigned(number("attempts", 1, 1000, settings.attempts));
    settings.max_queued = std::uint64_t(number("max-queued", 1, 10'000'000, std::int64_t(settings.max_queued)));
    settings.address_connections =
        unsigned(number("address-connections", 0, kMaxConnections, settings.address_connections));
    settings.address_images =
        std::uint64_t(number("address-images", 0, 10'000'000, std::int64_t(settings.address_images)));
    for (const auto* table : toml_tables(root_, "rule", what_)) settings.rules.push_back(read_rule(*table));
    if (settings.rules.empty()) fail<CorruptData>("{}: it has no [[rule]], so that nothing would be indexed", what_);
    if (settings.secret.empty() && !settings.listen.is_of_this_machine())
      fail<UsageError>("{}: {} can be reached by others, who could order work: set secret-file", what_,
                       settings.listen.to_string());
    return settings;
  }

 private:
  void check_registry(const Settings& settings) const {
    try {
      if (settings.reference("name").host == settings.registry) return;
    } catch (const UsageError&) {
    }
    fail<CorruptData>("{}: 'registry' must be HOST or HOST:PORT, not '{}'", toml_place(what_, *root_.find("registry")),
                      settings.registry);
  }

  std::string path(const std::string& text) const {
    return text.empty() ? text : (file_.parent_path() / text).lexically_normal().string();
  }

  std::int64_t number(std::string_view key, std::int64_t least, std::int64_t most, std::int64_t absent) const {
    const auto* value = root_.find(key);
    if (value == nullptr) return absent;
    if (value->kind != TomlValue::Kind::kInteger || value->integer < least || value->integer > most)
      fail<CorruptData>("{}: '{}' must be a number from {} to {}", toml_place(what_, *value), key, least, most);
    return value->integer;
  }

  std::chrono::seconds seconds(std::string_view key, std::int64_t least, std::chrono::seconds absent) const {
    return std::chrono::seconds(number(key, least, 30 * 24 * 3600, absent.count()));
  }

  std::string read_secret() const {
    const auto file = path(toml_string(root_, "secret-file", what_));
    if (file.empty()) return {};
    const auto bytes = read_file(file, kMaxSecretBytes);
    const auto secret = trimmed(as_text(bytes));
    if (secret.empty() || secret.find('\n') != secret.npos)
      fail<CorruptData>("{}: it must hold one line, the secret", file);
    return std::string(secret);
  }

  Rule read_rule(const TomlValue& table) const {
    toml_only_keys(table, {"repositories", "tags", "platforms", "sign", "passphrase-file", "learn", "previous"}, what_);
    Rule rule;
    rule.repositories = toml_strings(table, "repositories", what_, true);
    rule.tags = toml_strings(table, "tags", what_);
    for (const auto& text : toml_strings(table, "platforms", what_)) {
      try {
        rule.platforms.push_back(oci::Platform::parse(text));
      } catch (const UsageError& error) {
        fail<CorruptData>("{}: 'platforms': {}", toml_place(what_, *table.find("platforms")), error.what());
      }
    }
    rule.key = path(toml_string(table, "sign", what_));
    rule.passphrase_file = path(toml_string(table, "passphrase-file", what_));
    rule.learn = toml_flag(table, "learn", what_);
    rule.previous = toml_flag(table, "previous", what_);
    if (rule.repositories.empty()) fail<CorruptData>("{}: a rule without a repository", toml_place(what_, table));
    return rule;
  }

  const TomlValue& root_;
  const std::filesystem::path& file_;
  const std::string what_;
};

}  // namespace

bool Rule::has_repository(std::string_view repository) const { return any_matches(repositories, repository); }
bool Rule::has_tag(std::string_view tag) const { return tags.empty() || (!tag.empty() && any_matches(tags, tag)); }
bool Rule::has_platform(const oci::Platform& platform) const {
  return platforms.empty() || std::ranges::any_of(platforms, [&](const auto& wanted) {
           return wanted.normalised() == platform.normalised();
         });
}

const Rule* Settings::rule_for(std::string_view repository, std::string_view tag) const {
  for (const auto& rule : rules)
    if (rule.has_repository(repository) && rule.has_tag(tag)) return &rule;
  return nullptr;
}

oci::Reference Settings::reference(const std::string& repository) const {
  return oci::Reference::parse(registry + "/" + repository);
}

Settings parse_settings(std::string_view toml, const std::filesystem::path& file,
                        const std::optional<std::string>& listen) {
  return Reader(parse_toml(toml, file.string()), file).read(listen);
}

Settings read_settings(const std::filesystem::path& file, const std::optional<std::string>& listen) {
  const auto whole = std::filesystem::absolute(file);
  const auto bytes = read_file_if_there(whole, kMaxTomlBytes);
  if (!bytes) fail<UsageError>("{}: there is no such file; `varve webhook --config FILE` says which", file.string());
  return parse_settings(as_text(*bytes), whole, listen);
}

}  // namespace varve::webhook
