#pragma once
// One HTTP exchange at a time per caller, on libcurl; no redirects, no retries, no authentication of its own.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/errors.h"
#include "core/base/threads/cancel.h"
#include "core/oci/internal/first_answer.h"
#include "core/oci/internal/http_headers.h"
#include "core/oci/internal/url.h"

namespace varve::oci::internal {

// The exchange did not come to an end: no connection, broken, stalled. Trying again may help.
class TransportError : public TemporaryError {
 public:
  // How the other side showed that it speaks something else, if it did.
  enum class Refused : std::uint8_t { kNothing, kTls, kHttp };
  TransportError(const std::string& message, Refused refused, bool no_answer)
      : TemporaryError(message), refused_(refused), no_answer_(no_answer) {}
  // The other side did not speak TLS at all.
  bool tls_refused() const { return refused_ == Refused::kTls; }
  // It closed the connection without an answer, or what it said was none: to plain HTTP, as who speaks TLS does.
  bool http_refused() const { return refused_ == Refused::kHttp; }
  // Not even the head of one came.
  bool no_answer() const { return no_answer_; }

 private:
  Refused refused_;
  bool no_answer_;
};

// What answered speaks no HTTP; to plain HTTP an alert of TLS is that.
class NoHttp : public Error {
 public:
  using Error::Error;
};

struct HttpHead {
  int status = 0;
  HttpHeaders headers;
};

inline bool is_success(int status) { return status >= 200 && status < 300; }

struct HttpResponse {
  HttpHead head;
  Bytes body;  // unless the request had on_body
  int status() const { return head.status; }
};

struct HttpRequest {
  std::string method = "GET";
  Url url;
  std::vector<std::string> headers;        // "Name: value"
  bool fresh_connection = false;           // none that is idle
  bool follow_redirects = true;            // for those above this layer: nothing is followed here
  std::uint64_t max_body_bytes = 1 << 20;  // of an answer that is collected

  // For methods with a body; called again from offset 0 if the connection must be made anew.
  bool has_body = false;
  std::uint64_t body_bytes = 0;
  std::function<std::size_t(std::uint64_t offset, std::span<std::byte> into)> read_body;

  const CancelFlag* stop = nullptr;  // once it is set, the exchange throws Cancelled at once

  std::function<void(const HttpHead&)> on_head;  // once, before any body
  std::function<bool(ByteView)> on_body;  // false: enough, the rest is not read. What it throws reaches the caller.
};

// What a client shows to say who it is; only to that host, as it would be of use to nobody else.
struct ClientCertificate {
  std::string host;                   // with port: "registry.example:443"
  std::filesystem::path certificate;  // PEM
  std::filesystem::path key;
};

struct HttpConnection;
class IdleConnections;

struct HttpClientOptions {
  std::string authorities = {};         // PEM, trusted besides the system's certificates
  std::string certificate_folder = {};  // where a user may put more of them, for messages
  std::optional<ClientCertificate> client = {};
  std::string unverified_host = {};  // "cache.example:443": its certificate is not looked at; "" = all are
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds stall_timeout{20'000};
  // Its limit ends with the first line of an answer, whoever got that: no body is cut.
  FirstAnswerWait first_answer = {};
  const CancelFlag* cancel = nullptr;  // once it is set, exchanges that are not done in a second throw Cancelled
  std::shared_ptr<IdleConnections> idle = {};  // of clients with the same trust_key(); null = its own

  // What must be equal for a connection of one client to be as good as one of another's.
  std::string trust_key() const;
};

// Safe to use from any thread. Idle connections are kept; proxies come from the environment (http_proxy, https_proxy,
// all_proxy, no_proxy), as libcurl reads them.
class HttpClient {
 public:
  explicit HttpClient(HttpClientOptions options);
  ~HttpClient();

  // Any status is an answer. Throws TransportError, NoHttp, or Error for what stays wrong (a certificate that is not
  // trusted).
  HttpResponse exchange(const HttpRequest& request);

  std::string trust_key() const { return options_.trust_key(); }
  // To where the URL leads, idle, and hardly closed by the server yet.
  std::size_t count_idle(const Url& url) const;

  // What the first client does, and its first exchange with TLS. Throws Error.
  static void prepare();

 private:
  HttpClientOptions options_;
};

}  // namespace varve::oci::internal
