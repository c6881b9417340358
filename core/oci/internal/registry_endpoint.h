#pragma once
// Requests to one repository of one registry: scheme, authentication, redirects, retries, and what errors mean.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/clock.h"
#include "core/oci/internal/authenticator.h"
#include "core/oci/internal/backoff.h"
#include "core/oci/internal/http_client.h"
#include "core/oci/internal/source.h"
#include "core/oci/repository.h"

namespace varve::oci::internal {

inline constexpr int kMaxRedirects = 8;

// Counted from any thread, never reset.
struct RegistryCounters {
  std::atomic<std::uint64_t> requests = 0;
  std::atomic<std::uint64_t> received_bytes = 0;  // of blobs, what was skipped included
  std::atomic<std::uint64_t> retries = 0;
  std::atomic<std::uint64_t> redirects = 0;
  std::atomic<std::uint64_t> relocations = 0;     // storage URLs that had expired and were resolved again
  std::atomic<std::uint64_t> ranges_ignored = 0;  // answers 200 to a range request
  std::atomic<std::uint64_t> skipped_bytes = 0;   // received before the range that was asked for
};

// Safe to use from any thread.
class RegistryEndpoint {
 public:
  RegistryEndpoint(const Source& source, const RegistryOptions& options, Clock& clock,
                   const FirstAnswerWait& first_answer = {});
  ~RegistryEndpoint();

  // URL of "<root>/<repository>/<rest>" at the registry. Finds out first whether it speaks TLS where that is open, but
  // for this machine's own: send() does.
  Url url(const std::string& rest);
  // Opens connections by requests for nothing ("<root>/"), so that so many will be there for later requests. Returns at
  // once; what fails is not told.
  void open_connections(std::size_t count);

  // One exchange, with our Authorization and the source's headers if (and only if) it goes to the registry itself; a
  // 401 is answered with new authorization once, a 403 if there are other credentials by now. on_head and on_body see
  // answers 2xx only; of others the beginning of the body is collected. Throws TransportError.
  HttpResponse send(const HttpRequest& request, const std::string& scopes);
  // The same with redirects of GET and HEAD followed, and with retries; statuses that do not pass are returned.
  // Throws TemporaryError when the attempts are used up.
  HttpResponse call(const HttpRequest& request, const std::string& scopes, std::string_view what);
  // Where a redirect leads; throws Error for none, for an invalid one and for one that leaves TLS.
  Url redirect_target(const HttpResponse& response, const Url& from, std::string_view what);

  Backoff backoff();
  Clock& clock() { return clock_; }
  RegistryCounters& counters() { return counters_; }
  std::uint64_t tokens_fetched() const { return authenticator_.tokens_fetched(); }
  // "registry.example/team/app", for messages.
  const std::string& name() const { return name_; }
  const std::string& repository() const { return source_.repository; }
  std::string pull_scope() const { return "repository:" + source_.repository + ":pull"; }
  std::string push_scope() const { return "repository:" + source_.repository + ":pull,push"; }

 private:
  Url base();
  Url as_spoken(const Url& url);
  bool turns_out_to_speak_tls(const Url& asked);
  std::size_t idle_connections() const;
  HttpResponse follow(HttpRequest request, const std::string& scopes, std::string_view what);
  bool speaks_tls(const std::string& host);

  const Source source_;
  const std::string name_;
  int max_attempts_;
  const CancelFlag* cancel_;
  Clock& clock_;
  RegistryCounters counters_;
  HttpClient http_;
  Authenticator authenticator_;
  std::mutex probe_mutex_;  // the only one that is held over I/O: nobody can go on before the scheme is known
  std::optional<Url> base_;
  // Of this machine's own, until the first answer: that it speaks HTTP. To ask would cost a round trip, and a tunnel
  // may lead far.
  std::atomic<bool> is_assumed_ = false;
  CancelFlag closing_;
  std::once_flag connections_opened_;
  std::jthread opening_;
};

bool is_redirect_status(int status);

// "status 404, MANIFEST_UNKNOWN: manifest unknown": the registry's own words if it sent its JSON errors, cut and made
// printable.
std::string describe(const HttpResponse& response);
// Throws what the status means: NotFound for 404, TemporaryError for what may pass, Error for a final answer.
[[noreturn]] void fail_response(const HttpResponse& response, std::string_view what);

}  // namespace varve::oci::internal
