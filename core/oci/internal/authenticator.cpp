#include "core/oci/internal/authenticator.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/base64.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"
#include "core/oci/internal/backoff.h"
#include "core/oci/internal/registry_endpoint.h"

namespace varve::oci::internal {
namespace {

constexpr std::uint64_t kMaxTokenAnswerBytes = 1024 * 1024;
constexpr std::int64_t kDefaultLifetime = 60;  // seconds, by the specification
constexpr std::int64_t kMaxLifetime = 24 * 3600;
constexpr std::chrono::seconds kBetweenDenials{5};

// What we need and what the registry named, each once: the registry knows best, but it may name less than the next
// request needs.
std::vector<std::string> all_scopes(const std::string& scopes, const std::string& challenge_scope) {
  std::vector<std::string> all;
  for (const auto* words : {&scopes, &challenge_scope})
    for (const auto word : split_words(*words, " \t\r\n"))
      if (std::ranges::find(all, word) == all.end()) all.emplace_back(word);
  return all;
}

std::string header_safe(const std::string& value, std::string_view what) {
  const bool is_safe = std::all_of(value.begin(), value.end(), [](unsigned char c) { return c > 0x20 && c != 0x7f; });
  if (value.empty() || !is_safe) fail<CorruptData>("{}: a token that cannot be sent", what);
  return value;
}

// Whatever their ports; `registry` may have one.
bool is_same_machine(const std::string& host, const std::string& registry) {
  const auto at = Url::parse("http://" + registry);
  return (at && at->host == host) || (is_loopback_host(host) && is_loopback_host(registry));
}

std::string no_credentials(const std::string& host) {
  return fmt::format(
      "no credentials for this registry were found; log in with `skopeo login {0}` or `podman login {0}`, or name the "
      "file that holds them with --authfile",
      host);
}

}  // namespace

Authenticator::Authenticator(HttpClient& http, Clock& clock, AuthenticatorOptions options)
    : http_(http),
      clock_(clock),
      options_(std::move(options)),
      state_(options_.state ? std::move(options_.state) : std::make_shared<AuthState>()) {}

// Somebody may have logged out, or in, since they did.
void Authenticator::leave_those_with_other_credentials() {
  const auto theirs = state_;
  const auto known = [&] {
    const std::lock_guard lock(theirs->mutex);
    return theirs->credential;
  }();
  if (known && *known != find_credential(options_.places, options_.host, options_.repository))
    state_ = std::make_shared<AuthState>();
}

std::string Authenticator::authorization(const std::string& scopes) {
  std::call_once(looked_, [&] { leave_those_with_other_credentials(); });
  std::string stale;
  std::optional<BearerRealm> realm;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->basic.empty()) return state_->basic;
    if (!state_->realm) return {};
    const auto found = state_->tokens.find(scopes);
    if (found != state_->tokens.end()) {
      if (!found->second.header.empty() && clock_.now() < found->second.refresh_at) return found->second.header;
      stale = found->second.header;
    }
    realm = state_->realm;
  }
  return fetch_shared(scopes, stale, *realm, "");
}

std::string Authenticator::renew(const std::string& scopes, const HttpHeaders& unauthorized, const std::string& used) {
  const Challenge* basic = nullptr;
  const Challenge* bearer = nullptr;
  std::vector<Challenge> challenges;
  for (const auto value : unauthorized.all("WWW-Authenticate"))
    for (auto& challenge : parse_challenges(value)) challenges.push_back(std::move(challenge));
  for (const auto& challenge : challenges) {
    if (challenge.scheme == "bearer" && bearer == nullptr) bearer = &challenge;
    if (challenge.scheme == "basic" && basic == nullptr) basic = &challenge;
  }
  if (bearer != nullptr) {
    // A token that is refused may be one for nobody, which some give instead of refusing credentials that have ended.
    if (!used.empty()) look_again();
    const auto realm = realm_of(*bearer);
    const auto scope = bearer->parameters.find("scope");
    {
      const std::lock_guard lock(state_->mutex);
      state_->realm = realm;
    }
    return fetch_shared(scopes, used, realm, scope == bearer->parameters.end() ? "" : scope->second);
  }
  if (basic != nullptr) return basic_header(used);
  fail<Error>("{}: access denied, and the registry offers no way to log in that is known here (basic, bearer)",
              options_.host);
}

std::string Authenticator::renew_if_changed(const std::string& scopes, const std::string& used) {
  std::optional<BearerRealm> realm;
  std::optional<Credential> before;
  {
    const std::lock_guard lock(state_->mutex);
    const auto now = clock_.now();
    if (!state_->credential || (state_->denied_at && now - *state_->denied_at < kBetweenDenials)) return {};
    state_->denied_at = now;
    realm = state_->realm;
    before = *state_->credential;
  }
  const auto found = credential(true);
  if (!found || found == before) return {};
  if (used.starts_with("Basic ")) return basic_header(used);
  return realm ? fetch_shared(scopes, used, *realm, "") : std::string();
}

Authenticator::BearerRealm Authenticator::realm_of(const Challenge& challenge) const {
  const auto realm = challenge.parameters.find("realm");
  auto url = realm == challenge.parameters.end() ? std::nullopt : Url::parse(realm->second);
  if (!url) fail<Error>("{}: the registry names no valid token server", options_.host);
  // Without TLS anybody on the way may have named it, so it gets only what the registry itself would get in clear.
  if (url->scheme != "https" && !(options_.plain_http && is_same_machine(url->host, options_.host)))
    fail<Error>("{}: the registry names a token server without TLS ({}); no credentials are sent there", options_.host,
                url->shown());
  const auto service = challenge.parameters.find("service");
  return {.url = std::move(*url), .service = service == challenge.parameters.end() ? "" : service->second};
}

std::string Authenticator::basic_header(const std::string& used) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->basic.empty() && state_->basic != used) return state_->basic;  // somebody was faster
  }
  // A changed file, a helper or a plugin with short-lived passwords may know better by now.
  const auto found = credential(true);
  if (!found || found->username.empty())
    fail<Error>("{}: access denied; {}", options_.host, no_credentials(options_.host));
  auto header = "Basic " + base64_encode(found->username + ":" + found->password);
  if (header == used) fail<Error>("{}: access denied; the credentials for this registry were refused", options_.host);
  const std::lock_guard lock(state_->mutex);
  state_->basic = header;
  return header;
}

std::optional<Credential> Authenticator::credential(bool anew) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!anew && state_->credential) return *state_->credential;
  }
  auto found = find_credential(options_.places, options_.host, options_.repository, anew);
  const std::lock_guard lock(state_->mutex);
  state_->credential = found;
  return found;
}

std::string Authenticator::fetch_shared(const std::string& scopes, const std::string& used, const BearerRealm& realm,
                                        const std::string& challenge_scope) {
  std::unique_lock lock(state_->mutex);
  while (true) {
    auto& token = state_->tokens[scopes];
    if (!token.header.empty() && token.header != used && clock_.now() < token.refresh_at)
      return token.header;  // somebody was faster
    if (!token.fetching) {
      token.fetching = true;
      break;
    }
    const auto fetches = token.fetches;
    state_->changed.wait(lock, [&] { return state_->tokens[scopes].fetches != fetches; });
    if (const auto failure = state_->tokens[scopes].failure) std::rethrow_exception(failure);  // theirs is ours
  }
  lock.unlock();
  Token fetched;
  std::exception_ptr given_up;
  try {
    fetched = fetch_token(scopes, realm, challenge_scope);
  } catch (const Cancelled&) {
    given_up = std::current_exception();  // ours alone: one of those who wait asks in our place
  } catch (...) {
    fetched.failure = std::current_exception();
  }
  lock.lock();
  fetched.fetches = state_->tokens[scopes].fetches + 1;
  state_->tokens[scopes] = fetched;
  state_->changed.notify_all();
  if (given_up) std::rethrow_exception(given_up);
  if (fetched.failure) std::rethrow_exception(fetched.failure);
  ++tokens_fetched_;
  return fetched.header;
}

// An identity token that the server has renewed is newer than what files say.
void Authenticator::look_again() {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->credential || (*state_->credential && !(*state_->credential)->identity_token.empty())) return;
  }
  credential(true);
}

Authenticator::Token Authenticator::fetch_token(const std::string& scopes, const BearerRealm& realm,
                                                const std::string& challenge_scope) {
  const auto started = clock_.now();
  const auto what = "token server " + realm.url.shown();
  auto who = credential(false);
  auto response = ask_token_server(scopes, realm, challenge_scope, who);
  if (response.status() == 401 || response.status() == 403) {
    // Perhaps somebody logged in anew while we ran.
    auto fresh = credential(true);
    if (fresh && fresh != who) response = ask_token_server(scopes, realm, challenge_scope, who = std::move(fresh));
  }
  if (response.status() == 401 || response.status() == 403)
    fail<Error>("{}: access to {} denied by its token server; {}", options_.host, options_.repository,
                who ? std::string("the credentials were refused") : no_credentials(options_.host));
  if (response.status() != 200) fail<Error>("{}: it answered with status {}", what, response.status());

  const auto json = JsonValue::parse(response.body, what, {.bytes = kMaxTokenAnswerBytes});
  auto token = json.maybe("token").text();
  if (token.empty()) token = json.maybe("access_token").text();
  auto lifetime = kDefaultLifetime;
  if (const auto expires = json.maybe("expires_in").raw();
      expires.is_number_integer() && expires.get<std::int64_t>() > 0)
    lifetime = std::min(expires.get<std::int64_t>(), kMaxLifetime);
  if (const auto renewed = json.maybe("refresh_token").text();
      !renewed.empty() && who && !who->identity_token.empty()) {
    const std::lock_guard lock(state_->mutex);
    if (state_->credential && *state_->credential) (*state_->credential)->identity_token = renewed;
  }
  Token result;
  result.header = "Bearer " + header_safe(token, what);
  result.refresh_at = started + std::chrono::milliseconds(lifetime * 800);
  return result;
}

HttpResponse Authenticator::ask_token_server(const std::string& scopes, const BearerRealm& realm,
                                             const std::string& challenge_scope, const std::optional<Credential>& who) {
  const auto wanted = all_scopes(scopes, challenge_scope);
  HttpRequest request;
  request.max_body_bytes = kMaxTokenAnswerBytes;
  std::string form;
  auto url = realm.url.text;
  if (who && !who->identity_token.empty()) {
    std::string scope_list;
    for (const auto& scope : wanted) scope_list += (scope_list.empty() ? "" : " ") + scope;
    form = "grant_type=refresh_token&client_id=varve&service=" + url_escape(realm.service) +
           "&scope=" + url_escape(scope_list) + "&refresh_token=" + url_escape(who->identity_token);
    request.method = "POST";
    request.headers = {"Content-Type: application/x-www-form-urlencoded"};
    request.has_body = true;
    request.body_bytes = form.size();
    request.read_body = [&form](std::uint64_t offset, std::span<std::byte> into) {
      std::copy_n(as_bytes(form).begin() + std::ptrdiff_t(offset), into.size(), into.begin());
      return into.size();
    };
  } else {
    if (!realm.service.empty()) url = with_query(url, "service", realm.service);
    for (const auto& scope : wanted) url = with_query(url, "scope", scope);
    url = with_query(url, "client_id", "varve");
    if (who && !who->username.empty())
      request.headers = {"Authorization: Basic " + base64_encode(who->username + ":" + who->password)};
  }
  const auto parsed = Url::parse(url);
  if (!parsed) fail<Error>("{}: the registry names no valid token server", options_.host);
  request.url = *parsed;
  for (Backoff backoff(clock_, options_.max_attempts, options_.cancel);;) {
    try {
      auto response = http_.exchange(request);
      if (!is_temporary_status(response.status())) return response;
      backoff.wait(fmt::format("token server {}: status {}", realm.url.shown(), response.status()),
                   retry_after_of(response.head.headers));
    } catch (const TransportError& error) {
      backoff.wait(error.what());
    }
  }
}

}  // namespace varve::oci::internal
