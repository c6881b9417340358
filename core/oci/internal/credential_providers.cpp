#include "core/oci/internal/credential_providers.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/child_process.h"
#include "core/base/text/glob.h"
#include "core/base/text/json_document.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/yaml.h"

namespace varve::oci::internal {
namespace {

constexpr std::uint64_t kMaxProviderConfigBytes = 1024 * 1024;
constexpr std::size_t kMaxProviderAnswerBytes = 1024 * 1024;
constexpr std::size_t kMaxProviders = 1'000;
constexpr std::string_view kConfigKind = "CredentialProviderConfig";
constexpr std::string_view kConfigGroup = "kubelet.config.k8s.io/";
constexpr std::string_view kRequestKind = "CredentialProviderRequest";
constexpr std::string_view kAnswerKind = "CredentialProviderResponse";
constexpr std::string_view kAnswerGroup = "credentialprovider.kubelet.k8s.io/";
// Many readers may be refused at the same moment for one reason.
constexpr std::chrono::seconds kLeastAge{1};
constexpr std::chrono::seconds kRestAfterFailure{10};
constexpr std::chrono::hours kLongestDuration{24 * 365};

struct Place {
  std::vector<std::string_view> labels;
  std::string_view port, path;
};

// "[https://]HOST[:PORT][/PATH]"
Place place_of(std::string_view text) {
  if (const auto scheme = text.find("://"); scheme != text.npos) text.remove_prefix(scheme + 3);
  Place place;
  const auto slash = std::min(text.find('/'), text.size());
  place.path = text.substr(slash);
  auto host = text.substr(0, slash);
  if (const auto colon = host.rfind(':'); colon != host.npos) {
    place.port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  place.labels = split(host, ".");
  return place;
}

// As they stand in files of docker's: an API's version is no path.
std::string_view without_api_path(std::string_view path) {
  for (const std::string_view api : {"/v1", "/v2"})
    if (path == api || path == std::string(api) + "/") return {};
  return path;
}

std::string_view registry_of(std::string_view image) { return image.substr(0, image.find('/')); }

std::string cache_key(ProviderAnswer::CacheKey key, const std::string& image) {
  switch (key) {
    case ProviderAnswer::CacheKey::kImage:
      return "image " + image;
    case ProviderAnswer::CacheKey::kRegistry:
      return "registry " + std::string(registry_of(image));
    case ProviderAnswer::CacheKey::kGlobal:
      return "global";
  }
  return "image " + image;
}

std::chrono::milliseconds duration_of(const JsonValue& value) {
  const auto duration = parse_go_duration(value.text(100));
  if (!duration) value.refuse("is no duration, as \"12h\" is");
  return *duration;
}

CredentialProvider provider_of(const JsonValue& entry) {
  CredentialProvider provider;
  provider.name = entry["name"].text(200);
  // It becomes part of a path.
  const auto name = std::string_view(provider.name);
  if (name.empty() || name == "." || name == ".." || name.find_first_of("/\\ \t\n") != name.npos ||
      name.find('\0') != name.npos)
    entry["name"].refuse("is no name of a program");
  provider.api_version = entry["apiVersion"].text(200);
  if (!provider.api_version.starts_with(kAnswerGroup))
    entry["apiVersion"].refuse("is none of credentialprovider.kubelet.k8s.io");
  provider.match_images = entry["matchImages"].texts(kMaxProviders);
  if (provider.match_images.empty()) entry["matchImages"].refuse("is empty");
  if (const auto duration = entry.maybe("defaultCacheDuration"))
    provider.default_cache_duration = duration_of(duration);
  provider.args = entry.maybe("args").texts(kMaxProviders);
  for (const auto& variable : entry.maybe("env").items(kMaxProviders)) {
    const auto variable_name = variable["name"].text();
    if (variable_name.empty() || variable_name.find('=') != variable_name.npos)
      variable["name"].refuse("is no name of a variable");
    provider.env.push_back(variable_name + "=" + variable.maybe("value").text());
  }
  for (const auto* list : {&provider.args, &provider.env})
    for (const auto& word : *list)
      if (word.find('\0') != word.npos) entry.refuse("holds a NUL");
  if (const auto tokens = entry.maybe("tokenAttributes"); tokens && tokens.is_object()) {
    const auto& needed = tokens.maybe("requireServiceAccount").raw();
    provider.needs_service_account = needed == true || needed == "true";
  }
  return provider;
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_go_duration(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ms", 1},           {"us", 1e-3}, {"\xc2\xb5s", 1e-3},
                                                            {"\xce\xbcs", 1e-3}, {"ns", 1e-6}, {"h", 3.6e6},
                                                            {"m", 6e4},          {"s", 1e3}};
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return std::chrono::milliseconds(0);
  double sum = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_not_of("0123456789."), text.size());
    const auto digits = text.substr(0, end);
    double number = 0;
    const auto [at, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (digits.empty() || error != std::errc() || at != digits.data() + digits.size()) return std::nullopt;
    text.remove_prefix(end);
    const auto unit = std::ranges::find_if(kUnits, [&](const auto& one) { return text.starts_with(one.first); });
    if (unit == std::end(kUnits)) return std::nullopt;
    text.remove_prefix(unit->first.size());
    sum += number * unit->second;
  }
  const double longest = double(std::chrono::milliseconds(kLongestDuration).count());
  return std::chrono::milliseconds(std::int64_t(std::min(sum, longest)));
}

bool image_matches(std::string_view pattern, std::string_view image) {
  const auto wanted = place_of(pattern);
  const auto place = place_of(image);
  if (wanted.port != place.port || wanted.labels.size() != place.labels.size()) return false;
  if (!place.path.starts_with(without_api_path(wanted.path))) return false;
  for (std::size_t i = 0; i < wanted.labels.size(); ++i)
    if (!glob_matches(wanted.labels[i], place.labels[i])) return false;
  return true;
}

std::vector<CredentialProvider> parse_credential_providers(std::string_view text, std::string_view what) {
  if (text.size() > kMaxProviderConfigBytes) fail<CorruptData>("{}: more than {} bytes", what, kMaxProviderConfigBytes);
  const auto config = trimmed(text).starts_with('{')
                          ? JsonValue::parse(text, what, {.bytes = kMaxProviderConfigBytes, .depth = 32})
                          : parse_yaml(text, what);
  if (!config.is_object()) config.refuse("is no configuration of credential providers");
  if (config["kind"].text(200) != kConfigKind) config["kind"].refuse("is not CredentialProviderConfig");
  if (!config["apiVersion"].text(200).starts_with(kConfigGroup))
    config["apiVersion"].refuse("is none of kubelet.config.k8s.io");
  std::vector<CredentialProvider> providers;
  for (const auto& entry : config["providers"].items(kMaxProviders)) providers.push_back(provider_of(entry));
  return providers;
}

std::optional<Credential> ProviderAnswer::find(std::string_view image) const {
  // The kubelet looks at them from the last in the alphabet on: of two that fit, the longer path comes first.
  for (auto at = credentials.rbegin(); at != credentials.rend(); ++at)
    if (image_matches(at->first, image)) return at->second;
  return std::nullopt;
}

ProviderAnswer parse_provider_answer(std::string_view text, std::string_view api_version, std::string_view what) {
  const auto json = JsonValue::parse(text, what, {.bytes = kMaxProviderAnswerBytes, .depth = 16, .values = 20'000});
  if (!json.is_object() || json["kind"].text() != kAnswerKind) json.refuse("is no CredentialProviderResponse");
  if (json["apiVersion"].text() != api_version) json["apiVersion"].refuse("is not the one that was asked for");
  ProviderAnswer answer;
  const auto key = json["cacheKeyType"].text();
  if (key == "Image")
    answer.cache_key = ProviderAnswer::CacheKey::kImage;
  else if (key == "Registry")
    answer.cache_key = ProviderAnswer::CacheKey::kRegistry;
  else if (key == "Global")
    answer.cache_key = ProviderAnswer::CacheKey::kGlobal;
  else
    json["cacheKeyType"].refuse("is none of Image, Registry and Global");
  if (const auto duration = json.maybe("cacheDuration")) answer.cache_duration = duration_of(duration);
  for (const auto& [pattern, entry] : json.maybe("auth").members()) {
    Credential credential{
        .username = entry.maybe("username").text(), .password = entry.maybe("password").text(), .identity_token = {}};
    if (!credential.username.empty() || !credential.password.empty())
      answer.credentials[pattern] = std::move(credential);
  }
  return answer;
}

CredentialProviders::CredentialProviders(CredentialProviderSettings settings, Clock& clock,
                                         std::chrono::milliseconds time_limit)
    : settings_(std::move(settings)), clock_(clock), time_limit_(time_limit) {}

// Anew each time: it is small, and may change while we run.
std::vector<CredentialProvider> CredentialProviders::read_config() {
  std::string trouble;
  std::vector<CredentialProvider> providers;
  try {
    const auto text = read_file(settings_.config, kMaxProviderConfigBytes);
    providers = parse_credential_providers(as_text(text), settings_.config.string());
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  const std::lock_guard lock(mutex_);
  if (!trouble.empty() && trouble != told_)
    log::warn("no credential provider of the kubelet is asked: {}", message_text(trouble));
  told_ = trouble;
  return providers;
}

const CredentialProviders::Kept* CredentialProviders::find_kept(const Program& program, const std::string& image,
                                                                Clock::TimePoint now) {
  for (const auto key :
       {ProviderAnswer::CacheKey::kImage, ProviderAnswer::CacheKey::kRegistry, ProviderAnswer::CacheKey::kGlobal}) {
    const auto found = program.kept.find(cache_key(key, image));
    if (found != program.kept.end() && now < found->second.ends) return &found->second;
  }
  return nullptr;
}

ProviderAnswer CredentialProviders::run(const CredentialProvider& provider, const std::string& image,
                                        const CancelFlag* cancel) const {
  const auto request =
      nlohmann::json{{"kind", kRequestKind}, {"apiVersion", provider.api_version}, {"image", image}}.dump();
  ChildProgram program{.words = {(settings_.bin_dir / provider.name).string()},
                       .input = request,
                       .limit = time_limit_,
                       .max_output = kMaxProviderAnswerBytes + 1,
                       .environment = own_environment(),
                       .shows_errors = false};
  program.words.insert(program.words.end(), provider.args.begin(), provider.args.end());
  // The later one of a name is not what every program takes: ours go first.
  for (const auto& variable : provider.env) {
    const auto name = variable.substr(0, variable.find('=') + 1);
    std::erase_if(*program.environment, [&](const std::string& one) { return one.starts_with(name); });
    program.environment->push_back(variable);
  }
  const CancelFlag never;
  const auto result = run_child(program, cancel == nullptr ? never : *cancel);
  // What it wrote may hold secrets, on both its outputs.
  if (result.exit_status == 127 && result.out.empty()) fail<Error>("there is no such program, or it needs another");
  if (result.timed_out) fail<Error>("no answer within {} s", std::chrono::duration<double>(time_limit_).count());
  if (result.exit_status != 0) fail<Error>("it failed with status {}", result.exit_status);
  if (result.out.size() > kMaxProviderAnswerBytes)
    fail<Error>("an answer of more than {} bytes", kMaxProviderAnswerBytes);
  return parse_provider_answer(result.out, provider.api_version, "its answer");
}

std::optional<Credential> CredentialProviders::ask(const CredentialProvider& provider, const std::string& image,
                                                   bool anew, const CancelFlag* cancel) {
  {
    std::unique_lock lock(mutex_);
    auto& program = programs_[provider.name];
    changed_.wait(lock, [&] { return !program.running; });
    const auto now = clock_.now();
    if (const auto* kept = find_kept(program, image, now); kept != nullptr && (!anew || now - kept->asked < kLeastAge))
      return kept->answer.find(image);
    if (program.rests_until && now < *program.rests_until) return std::nullopt;
    program.running = true;
  }
  std::optional<ProviderAnswer> answer;
  std::string trouble;
  try {
    answer = run(provider, image, cancel);
  } catch (const Cancelled&) {
    const std::lock_guard lock(mutex_);
    programs_[provider.name].running = false;
    changed_.notify_all();
    throw;
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  const std::lock_guard lock(mutex_);
  auto& program = programs_[provider.name];
  program.running = false;
  changed_.notify_all();
  const auto now = clock_.now();
  if (!answer) {
    program.rests_until = now + kRestAfterFailure;
    log::warn("credential provider {}: {}; the next source of credentials is asked", printable(provider.name),
              message_text(trouble));
    return std::nullopt;
  }
  program.rests_until.reset();
  std::erase_if(program.kept, [&](const auto& one) { return one.second.ends <= now; });
  auto found = answer->find(image);
  // Held for a moment whatever it says: several readers wait for one call.
  const auto holds = answer->cache_duration.value_or(provider.default_cache_duration);
  program.kept[cache_key(answer->cache_key, image)] = {
      .answer = std::move(*answer), .asked = now, .ends = now + std::max<Clock::TimePoint::duration>(holds, kLeastAge)};
  return found;
}

std::optional<Credential> CredentialProviders::find(const std::string& image, bool anew, const CancelFlag* cancel) {
  for (const auto& provider : read_config()) {
    const bool fits = std::ranges::any_of(provider.match_images,
                                          [&](const std::string& pattern) { return image_matches(pattern, image); });
    if (!fits) continue;
    if (provider.needs_service_account) {
      log::debug("credential provider {}: it needs a pod's service account, which only the kubelet has", provider.name);
      continue;
    }
    if (auto found = ask(provider, image, anew, cancel)) return found;
  }
  return std::nullopt;
}

}  // namespace varve::oci::internal
