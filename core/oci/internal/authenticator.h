#pragma once
// What goes into the Authorization header for one registry: basic credentials or bearer tokens, renewed before they end
// (distribution's auth/token specification; Docker's OAuth2 variant for identity tokens).
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/oci/internal/credentials.h"
#include "core/oci/internal/http_client.h"

namespace varve::oci::internal {

struct AuthenticatorOptions {
  std::string host;  // as in references: key of the credentials
  std::string repository;
  CredentialPlaces places;
  bool plain_http = false;  // the token server may be asked without TLS
  int max_attempts = 6;
  const CancelFlag* cancel = nullptr;  // ends waiting for the token server
};

// Safe to use from any thread. Tokens are kept per set of scopes and renewed at 80 % of their lifetime; callers that
// need the same token at the same time share one request. `http` and `clock` must outlive it.
class Authenticator {
 public:
  Authenticator(HttpClient& http, Clock& clock, AuthenticatorOptions options);

  // The header value to send for these scopes (separated by spaces); "" while none is known to be needed.
  std::string authorization(const std::string& scopes);

  // After a 401: returns a header value that differs from the one `used`. Throws Error if the credentials are refused
  // or there are none, TemporaryError if the token server is away.
  std::string renew(const std::string& scopes, const HttpHeaders& unauthorized, const std::string& used);

  // After a 403: a header value of credentials that differ from those that `used` was made of; "" if there are none.
  // Looked for at most once in a few seconds. Throws as renew() does.
  std::string renew_if_changed(const std::string& scopes, const std::string& used);

  std::uint64_t tokens_fetched() const;

 private:
  struct Token {
    std::string header;
    Clock::TimePoint refresh_at;
    bool fetching = false;
    std::uint64_t fetches = 0;   // ended so far
    std::exception_ptr failure;  // of the last one
  };
  struct BearerRealm {
    Url url;
    std::string service;
  };

  std::string fetch_shared(const std::string& scopes, const std::string& used, const BearerRealm& realm,
                           const std::string& challenge_scope);
  Token fetch_token(const std::string& scopes, const BearerRealm& realm, const std::string& challenge_scope);
  HttpResponse ask_token_server(const std::string& scopes, const BearerRealm& realm, const std::string& challenge_scope,
                                const std::optional<Credential>& credential);
  std::string basic_header(const std::string& used);
  void look_again();
  std::optional<Credential> credential(bool anew);
  BearerRealm realm_of(const Challenge& challenge) const;

  HttpClient& http_;
  Clock& clock_;
  AuthenticatorOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, Token> tokens_;
  std::optional<BearerRealm> realm_;
  std::string basic_;
  std::optional<std::optional<Credential>> credential_;
  std::optional<Clock::TimePoint> denied_at_;  // when a 403 was last looked into
  std::uint64_t tokens_fetched_ = 0;
};

}  // namespace varve::oci::internal
