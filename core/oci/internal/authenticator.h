#pragma once
// What goes into the Authorization header for one registry: basic credentials or bearer tokens, renewed before they end
// (distribution's auth/token specification; Docker's OAuth2 variant for identity tokens).
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/oci/internal/credentials.h"
#include "core/oci/internal/http_client.h"

namespace varve::oci::internal {

// What is known of the way into one repository: what its registry asks for, and what was got for these credentials. Of
// one Authenticator, or of all that ask for the same repository of the same registry, with credentials from the same
// places.
struct AuthState {
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

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::map<std::string, Token> tokens;  // by scopes
  std::optional<BearerRealm> realm;
  std::string basic;
  std::optional<std::optional<Credential>> credential;  // as it was last looked for; absent: never yet
  std::optional<Clock::TimePoint> denied_at;            // when a 403 was last looked into
};

struct AuthenticatorOptions {
  std::string host;  // as in references: key of the credentials
  std::string repository;
  CredentialPlaces places;
  bool plain_http = false;  // the token server may be asked without TLS
  int max_attempts = 6;
  const CancelFlag* cancel = nullptr;     // ends waiting for the token server
  std::shared_ptr<AuthState> state = {};  // null = its own
};

// Safe to use from any thread. Tokens are kept per set of scopes and renewed at 80 % of their lifetime; callers that
// need the same token at the same time share one request. What others got counts as long as the credentials are those
// that are found now. `http` and `clock` must outlive it.
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

  // By this one.
  std::uint64_t tokens_fetched() const { return tokens_fetched_; }

 private:
  using Token = AuthState::Token;
  using BearerRealm = AuthState::BearerRealm;

  std::string fetch_shared(const std::string& scopes, const std::string& used, const BearerRealm& realm,
                           const std::string& challenge_scope);
  Token fetch_token(const std::string& scopes, const BearerRealm& realm, const std::string& challenge_scope);
  HttpResponse ask_token_server(const std::string& scopes, const BearerRealm& realm, const std::string& challenge_scope,
                                const std::optional<Credential>& credential);
  void leave_those_with_other_credentials();
  std::string basic_header(const std::string& used);
  void look_again();
  std::optional<Credential> credential(bool anew);
  BearerRealm realm_of(const Challenge& challenge) const;

  HttpClient& http_;
  Clock& clock_;
  AuthenticatorOptions options_;
  std::once_flag looked_;
  std::shared_ptr<AuthState> state_;  // not changed any more once looked_
  std::atomic<std::uint64_t> tokens_fetched_ = 0;
};

}  // namespace varve::oci::internal
