#include "core/oci/internal/registry_endpoint.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"
#include "core/base/text/safe_text.h"
#include "core/base/threads/parallel.h"
#include "core/oci/internal/host_certificates.h"

namespace varve::oci::internal {
namespace {

const std::string kHttp = "http://", kHttps = "https://";
constexpr int kBadRequest = 400;
constexpr std::size_t kMaxErrorBytes = 64 * 1024;
constexpr std::size_t kMaxShownError = 300;
// Unless a file says otherwise: whoever has another place to ask need not wait long for one that is away.
constexpr std::chrono::milliseconds kMirrorDialTimeout{1'000};

HttpClientOptions http_options(const Source& source, const RegistryOptions& options,
                               const FirstAnswerWait& first_answer) {
  const auto* home = std::getenv("HOME");
  const auto places = certificate_places(home == nullptr ? "" : home);
  const auto found = find_host_certificates(places, source.host);
  const std::chrono::milliseconds usual_timeout(options.connect_timeout_ms);
  HttpClientOptions http{.authorities = options.ca_file.empty() ? "" : read_authorities(options.ca_file) + "\n",
                         .certificate_folder = (places.at(places.size() - 2) / source.host).string() + "/",
                         .connect_timeout = source.dial_timeout.value_or(
                             source.is_mirror ? std::min(usual_timeout, kMirrorDialTimeout) : usual_timeout),
                         .stall_timeout = std::chrono::milliseconds(options.stall_timeout_ms),
                         .first_answer = first_answer,
                         .cancel = options.cancel};
  http.authorities += found.authorities;
  for (const auto& file : source.authorities) http.authorities += read_authorities(file) + "\n";
  const auto url = Url::parse("https://" + source.connect_to + "/");
  if (!url) fail<UsageError>("'{}' is no valid registry host", source.connect_to);
  const auto where = url->host + ":" + url->port;
  if (source.client)
    http.client = {.host = where, .certificate = source.client->first, .key = source.client->second};
  else if (!found.certificate.empty())
    http.client = {.host = where, .certificate = found.certificate, .key = found.key};
  if (!source.verify_tls) http.unverified_host = where;
  if (options.known_hosts) http.idle = options.known_hosts->connections_of(http.trust_key());
  return http;
}

CredentialPlaces places_of(const RegistryOptions& options) {
  auto places = usual_credential_places(options.authfile);
  places.providers = options.credential_providers;
  places.cancel = options.cancel;
  return places;
}

// What one may be told another may be, who would give the same credentials to the same host, and trusts it as much.
std::shared_ptr<AuthState> auth_state_of(const Source& source, const RegistryOptions& options,
                                         const std::string& trust_key) {
  if (!options.known_hosts) return nullptr;
  return options.known_hosts->auth_state_of(
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", int(source.scheme), source.connect_to, source.host, source.repository,
                  options.authfile.string(), fmt::ptr(options.credential_providers.get()), trust_key));
}

}  // namespace

bool is_redirect_status(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

RegistryEndpoint::RegistryEndpoint(const Source& source, const RegistryOptions& options, Clock& clock,
                                   const FirstAnswerWait& first_answer)
    : source_(source),
      name_(source.name()),
      max_attempts_(std::max(1, options.max_attempts)),
      cancel_(options.cancel),
      clock_(clock),
      http_(http_options(source, options, first_answer)),
      authenticator_(http_, clock,
                     {.host = source.host,
                      .repository = source.repository,
                      .places = places_of(options),
                      .plain_http = source.scheme != Scheme::kHttps,
                      .max_attempts = max_attempts_,
                      .cancel = cancel_,
                      .state = auth_state_of(source, options, http_.trust_key())}) {}

RegistryEndpoint::~RegistryEndpoint() { closing_.cancel(); }

void RegistryEndpoint::open_connections(std::size_t count) {
  std::call_once(connections_opened_, [&] {
    // Before the caller's next request takes one.
    const auto there = idle_connections();
    if (there >= count) return;
    opening_ = std::jthread([this, wanted = count - there] {
      try {
        HttpRequest request;
        request.method = "HEAD";
        request.url = base().resolve(source_.root + "/").value();
        request.headers = source_.headers;
        request.fresh_connection = true;
        request.stop = &closing_;
        parallel_for(wanted, wanted, closing_, [&](std::size_t, const CancelFlag&) {
          try {
            http_.exchange(request);
          } catch (const Error& error) {
            log::debug("{}: a connection ahead of requests: {}", name_, error.what());
          }
        });
      } catch (const std::exception& error) {
        log::debug("{}: connections ahead of requests: {}", name_, error.what());
      }
    });
  });
}

// By either protocol: which of them it speaks need not be known yet.
std::size_t RegistryEndpoint::idle_connections() const {
  std::size_t count = 0;
  for (const auto& scheme : {kHttp, kHttps})
    if (const auto url = Url::parse(scheme + source_.connect_to + "/")) count += http_.count_idle(*url);
  return count;
}

Backoff RegistryEndpoint::backoff() { return Backoff(clock_, max_attempts_, cancel_); }

bool RegistryEndpoint::speaks_tls(const std::string& host) {
  HttpRequest request;
  request.method = "HEAD";
  request.url = *Url::parse("https://" + host + "/v2/");
  try {
    http_.exchange(request);
    return true;
  } catch (const TransportError& error) {
    if (error.tls_refused()) return false;
    throw;
  } catch (const Cancelled&) {
    throw;
  } catch (const Error&) {
    return true;  // a certificate that is not trusted: the request that follows says so
  }
}

Url RegistryEndpoint::base() {
  const std::lock_guard lock(probe_mutex_);
  if (!base_) {
    const bool tls = source_.scheme == Scheme::kHttps ||
                     (source_.scheme == Scheme::kHttpsIfSpoken && speaks_tls(source_.connect_to));
    is_assumed_ = source_.scheme == Scheme::kHttpIfSpoken;
    base_ = Url::parse((tls ? kHttps : kHttp) + source_.connect_to + "/");
    if (!base_) fail<UsageError>("'{}' is no valid registry host", source_.connect_to);
  }
  return *base_;
}

// Of a URL that was made while the registry was assumed to speak HTTP.
Url RegistryEndpoint::as_spoken(const Url& url) {
  const auto plain = kHttp + source_.connect_to + "/";
  if (base().scheme == "http" || source_.scheme != Scheme::kHttpIfSpoken || !url.text.starts_with(plain)) return url;
  return *Url::parse(kHttps + url.text.substr(kHttp.size()));
}

// After no answer, or one that who speaks TLS gives to plain HTTP: 400, a connection that is closed, an alert.
bool RegistryEndpoint::turns_out_to_speak_tls(const Url& asked) {
  const std::lock_guard lock(probe_mutex_);
  if (is_assumed_ && speaks_tls(source_.connect_to)) base_ = Url::parse(kHttps + source_.connect_to + "/");
  is_assumed_ = false;
  return base_->scheme != asked.scheme;
}

Url RegistryEndpoint::url(const std::string& rest) {
  auto absolute = base().resolve(source_.root + "/" + source_.repository + "/" + rest);
  if (!absolute) fail<Error>("{}: no valid URL for {}", source_.host, rest);
  if (source_.names_host.empty()) return std::move(*absolute);
  return *Url::parse(with_query(absolute->text, "ns", source_.names_host));
}

HttpResponse RegistryEndpoint::send(const HttpRequest& given, const std::string& scopes) {
  const auto url = as_spoken(given.url);
  const bool to_registry = url.same_origin(base());
  // A redirect may lead back to the registry with a signature in the query: then ours would be a second one.
  std::string authorization = to_registry ? authenticator_.authorization(scopes) : std::string();
  for (int attempt = 0;; ++attempt) {
    HttpRequest request = given;
    request.url = url;
    if (!authorization.empty()) request.headers.push_back("Authorization: " + authorization);
    if (to_registry) request.headers.insert(request.headers.end(), source_.headers.begin(), source_.headers.end());
    int status = 0;
    Bytes collected;
    request.on_head = [&](const HttpHead& head) {
      status = head.status;
      if (is_success(status) && given.on_head) given.on_head(head);
    };
    request.on_body = [&](ByteView bytes) {
      if (is_success(status) && given.on_body) return given.on_body(bytes);
      const auto limit = is_success(status) ? given.max_body_bytes : kMaxErrorBytes;
      if (collected.size() + bytes.size() > limit) {
        if (is_success(status)) fail<Unsupported>("{}: an answer of more than {} bytes", given.url.shown(), limit);
        return false;
      }
      append(collected, bytes);
      return true;
    };
    ++counters_.requests;
    HttpResponse response;
    try {
      response = http_.exchange(request);
    } catch (const TransportError& error) {
      if (to_registry && error.http_refused() && error.no_answer() && turns_out_to_speak_tls(url))
        return send(given, scopes);
      throw;
    } catch (const NoHttp&) {
      if (to_registry && turns_out_to_speak_tls(url)) return send(given, scopes);
      throw;
    }
    response.body = std::move(collected);
    if (to_registry && response.status() == kBadRequest && turns_out_to_speak_tls(url)) return send(given, scopes);
    if (to_registry) is_assumed_ = false;
    if (!to_registry || attempt > 0) return response;
    if (response.status() == 401) {
      authorization = authenticator_.renew(scopes, response.head.headers, authorization);
    } else if (response.status() == 403) {
      // Some say so of credentials that have ended.
      auto other = authenticator_.renew_if_changed(scopes, authorization);
      if (other.empty()) return response;
      authorization = std::move(other);
    } else {
      return response;
    }
  }
}

Url RegistryEndpoint::redirect_target(const HttpResponse& response, const Url& from, std::string_view what) {
  const auto location = response.head.headers.find("Location");
  if (!location) fail<Error>("{}: a redirect (status {}) to nowhere", what, response.status());
  auto target = from.resolve(*location);
  if (!target) fail<Error>("{}: a redirect to an invalid URL", what);
  if (from.scheme == "https" && target->scheme != "https")
    fail<Error>("{}: redirected from TLS to plain HTTP ({}); refused", what, target->shown());
  ++counters_.redirects;
  return std::move(*target);
}

HttpResponse RegistryEndpoint::follow(HttpRequest request, const std::string& scopes, std::string_view what) {
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    auto response = send(request, scopes);
    const bool may_follow = request.follow_redirects && (request.method == "GET" || request.method == "HEAD");
    if (!may_follow || !is_redirect_status(response.status())) return response;
    request.url = redirect_target(response, request.url, what);
  }
  fail<Error>("{}: more than {} redirects", what, kMaxRedirects);
}

HttpResponse RegistryEndpoint::call(const HttpRequest& request, const std::string& scopes, std::string_view what) {
  for (auto waits = backoff();; ++counters_.retries) {
    try {
      auto response = follow(request, scopes, what);
      if (!is_temporary_status(response.status())) return response;
      waits.wait(fmt::format("{}: {}", what, describe(response)), retry_after_of(response.head.headers));
    } catch (const TransportError& error) {
      waits.wait(fmt::format("{}: {}", what, error.what()), std::nullopt, error.no_answer());
    }
  }
}

std::string describe(const HttpResponse& response) {
  auto text = fmt::format("status {}", response.status());
  try {
    const auto errors = JsonValue::parse(response.body, "error", {.bytes = kMaxErrorBytes}).maybe("errors").items();
    if (errors.empty()) return text;
    const auto code = errors.front().maybe("code").text();
    const auto message = errors.front().maybe("message").text();
    if (!code.empty()) text += ", " + single_line(code, kMaxShownError);
    if (!message.empty()) text += ": " + single_line(message, kMaxShownError);
  } catch (const Error&) {
    // A proxy's HTML page says nothing that helps.
  }
  return text;
}

void fail_response(const HttpResponse& response, std::string_view what) {
  const int status = response.status();
  const auto text = describe(response);
  if (status == 404) fail<NotFound>("{}: not found ({})", what, text);
  if (is_temporary_status(status)) fail<TemporaryError>("{}: {}", what, text);
  if (status == 401) fail<Error>("{}: access denied, the credentials were refused ({})", what, text);
  if (status == 403) fail<Error>("{}: access denied ({})", what, text);
  fail<Error>("{}: {}", what, text);
}

}  // namespace varve::oci::internal
