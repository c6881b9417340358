#include "core/oci/internal/http_client.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>

#include <curl/curl.h>
#include <openssl/x509_vfy.h>

#include "core/base/free_with.h"
#include "core/oci/internal/idle_connections.h"
#include "core/oci/internal/system_authorities.h"

namespace varve::oci::internal {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr long kReceiveBytes = 256 * 1024;
constexpr int kPollMs = 100;
// A registry may need long to store what it was sent before it answers.
constexpr int kCommitPatience = 15;

using HeaderList = std::unique_ptr<curl_slist, FreeWith<::curl_slist_free_all>>;

void initialise_library() {
  static const CURLcode result = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  if (result != CURLE_OK) throw Error("libcurl cannot be initialised");
}

HeaderList make_header_list(const std::vector<std::string>& headers) {
  HeaderList list;
  const auto add = [&](const std::string& line) {
    auto* longer = ::curl_slist_append(list.get(), line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    (void)list.release();
    list.reset(longer);
  };
  for (const auto& header : headers) add(header);
  add("Expect:");  // waiting for 100-continue stalls at some registries
  add("Accept-Encoding: identity");
  return list;
}

// What no second try will cure.
bool is_permanent(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CIPHER:
    case CURLE_URL_MALFORMAT:
    case CURLE_BAD_FUNCTION_ARGUMENT:
      return true;
    default:
      return false;
  }
}

TransportError::Refused refused_by(CURLcode code) {
  switch (code) {
    case CURLE_SSL_CONNECT_ERROR:
      return TransportError::Refused::kTls;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
      return TransportError::Refused::kHttp;
    default:
      return TransportError::Refused::kNothing;
  }
}

// State of one exchange, reached from libcurl's callbacks. They let nothing be thrown through C: it is kept here.
struct Exchange {
  Exchange(const HttpRequest& r, FirstAnswer* f) : request(r), first_answer(f) {}

  const HttpRequest& request;
  FirstAnswer* const first_answer;  // null = nobody wants to know
  HttpResponse response;
  std::size_t header_bytes = 0;
  bool head_done = false;
  bool enough = false;
  bool left_soon = false;  // nothing had come from the host, ever, and its time was up
  std::uint64_t sent = 0;
  std::uint64_t received = 0;  // of the body
  SteadyClock::time_point last_activity = SteadyClock::now();
  SteadyClock::duration in_callbacks{};  // time that sinks and sources took
  std::exception_ptr thrown;
  char error_text[CURL_ERROR_SIZE] = "";

  // Calls `operation`; what it throws is kept and `on_throw` is returned, which makes libcurl stop.
  template <typename Operation>
  std::size_t guard(std::size_t on_throw, Operation&& operation) noexcept {
    std::size_t result = on_throw;
    const auto began = SteadyClock::now();
    try {
      result = operation();
    } catch (...) {
      thrown = std::current_exception();
    }
    last_activity = SteadyClock::now();  // after the callback: time that a sink takes is not a stall
    in_callbacks += last_activity - began;
    return result;
  }

  void add_header_line(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kMaxHeaderBytes)
      fail<CorruptData>("{}: more than {} bytes of response headers", request.url.shown(), kMaxHeaderBytes);
    if (line.starts_with("HTTP/")) {
      response.head = {};
      const auto space = line.find(' ');
      const auto status = space == std::string_view::npos ? std::nullopt : parse_decimal(line.substr(space + 1, 3));
      if (!status || *status < 100) fail<CorruptData>("{}: a malformed status line", request.url.shown());
      response.head.status = int(*status);
      if (first_answer != nullptr) first_answer->note_came();  // whatever it says: somebody is there
      return;
    }
    if (head_done) return;  // trailers
    if (line != "\r\n" && line != "\n") {
      response.head.headers.add_line(line);
    } else if (response.head.status >= 200) {
      head_done = true;
      if (request.on_head) request.on_head(response.head);
    }
  }

  bool add_body(ByteView bytes) {
    if (request.on_body) return request.on_body(bytes);
    if (bytes.size() > request.max_body_bytes - std::min<std::uint64_t>(response.body.size(), request.max_body_bytes))
      fail<Unsupported>("{}: an answer of more than {} bytes", request.url.shown(), request.max_body_bytes);
    append(response.body, bytes);
    return true;
  }
};

std::size_t header_callback(char* data, std::size_t size, std::size_t count, void* exchange_pointer) {
  auto& exchange = *static_cast<Exchange*>(exchange_pointer);
  return exchange.guard(0, [&] {
    exchange.add_header_line({data, size * count});
    return size * count;
  });
}

std::size_t write_callback(char* data, std::size_t size, std::size_t count, void* exchange_pointer) {
  auto& exchange = *static_cast<Exchange*>(exchange_pointer);
  exchange.received += size * count;
  return exchange.guard(0, [&]() -> std::size_t {
    if (exchange.add_body(as_bytes({data, size * count}))) return size * count;
    exchange.enough = true;
    return 0;
  });
}

std::size_t read_callback(char* data, std::size_t size, std::size_t count, void* exchange_pointer) {
  auto& exchange = *static_cast<Exchange*>(exchange_pointer);
  return exchange.guard(CURL_READFUNC_ABORT, [&]() -> std::size_t {
    const auto left = exchange.request.body_bytes - exchange.sent;
    const auto wanted = std::size_t(std::min<std::uint64_t>(size * count, left));
    if (wanted == 0) return 0;
    const auto got = exchange.request.read_body(exchange.sent, {reinterpret_cast<std::byte*>(data), wanted});
    exchange.sent += got;
    return got;
  });
}

int seek_callback(void* exchange_pointer, curl_off_t offset, int origin) {
  auto& exchange = *static_cast<Exchange*>(exchange_pointer);
  if (origin != SEEK_SET || offset < 0 || std::uint64_t(offset) > exchange.request.body_bytes)
    return CURL_SEEKFUNC_FAIL;
  exchange.sent = std::uint64_t(offset);
  return CURL_SEEKFUNC_OK;
}

}  // namespace

HttpClient::HttpClient(HttpClientOptions options) : options_(std::move(options)) {
  initialise_library();
  if (!options_.idle) options_.idle = std::make_shared<IdleConnections>();
}
HttpClient::~HttpClient() = default;

void HttpClient::prepare() {
  initialise_library();
  SystemAuthorities::of_machine().known();
}

namespace {

std::string host_and_port(const Url& url) { return url.host + ":" + url.port; }
std::string origin_of(const Url& url) { return url.scheme + "://" + host_and_port(url); }

std::unique_ptr<HttpConnection> make_connection(std::string origin, std::vector<FileStamp> trusted) {
  auto connection = std::make_unique<HttpConnection>();
  if (!connection->multi || !connection->easy) throw std::bad_alloc();
  connection->origin = std::move(origin);
  connection->trusted = std::move(trusted);
  return connection;
}

// TLS within TLS: libcurl does not say that it was a certificate that it refused.
bool may_have_tls_proxy() {
  constexpr std::array kSettings = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
  return std::ranges::any_of(kSettings, [](const char* name) {
    const char* const proxy = std::getenv(name);
    return proxy != nullptr && ::strncasecmp(proxy, "https:", 6) == 0;
  });
}

void set_up_certificates(CURL* easy, const HttpClientOptions& options, const Url& url, X509_STORE* system) {
  if (system != nullptr) {
    verify_by(easy, system);
  } else if (!options.authorities.empty()) {
    // The system's are still looked up in their folder (CAPATH); this takes the place of the one file.
    curl_blob blob{.data = const_cast<char*>(options.authorities.data()),
                   .len = options.authorities.size(),
                   .flags = CURL_BLOB_NOCOPY};
    ::curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &blob);
  }
  const auto host = host_and_port(url);
  if (options.unverified_host == host) {
    ::curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    ::curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (options.client && options.client->host == host) {
    ::curl_easy_setopt(easy, CURLOPT_SSLCERT, options.client->certificate.c_str());
    ::curl_easy_setopt(easy, CURLOPT_SSLKEY, options.client->key.c_str());
  }
}

bool is_of_unknown_authority(CURL* easy, CURLcode result) {
  if (result != CURLE_PEER_FAILED_VERIFICATION) return false;
  long verdict = 0, of_proxy = 0;
  ::curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &verdict);
  ::curl_easy_getinfo(easy, CURLINFO_PROXY_SSL_VERIFYRESULT, &of_proxy);
  constexpr std::array<long, 5> kUnknown = {
      X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT,
      X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
      X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE};
  return std::ranges::any_of(kUnknown, [&](long unknown) { return unknown == verdict || unknown == of_proxy; });
}

// What to do about a connection that TLS refused; "" = nothing is known.
std::string tls_advice(bool unknown_authority, std::string_view reason, const HttpClientOptions& options) {
  if (unknown_authority)
    return fmt::format(
        "; its authority is not known here: name its certificate with --ca-file FILE, or put it into {} as ca.crt",
        options.certificate_folder);
  // Which of the alerts it is depends on the server's TLS.
  for (const std::string_view alert : {"certificate required", "alert bad certificate"})
    if (reason.find(alert) != std::string_view::npos)
      return fmt::format(
          "; it asks for a client's certificate: put it into {} as client.cert, and its key as client.key",
          options.certificate_folder);
  return {};
}

void set_up(CURL* easy, const HttpClientOptions& options, const HttpRequest& request, curl_slist* headers,
            X509_STORE* system, Exchange& exchange) {
  ::curl_easy_reset(easy);  // keeps the connections
  ::curl_easy_setopt(easy, CURLOPT_URL, request.url.text.c_str());
  ::curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  ::curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, long(CURL_HTTP_VERSION_2TLS));
  ::curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  ::curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(easy, CURLOPT_SSLVERSION, long(CURL_SSLVERSION_TLSv1_2));
  set_up_certificates(easy, options, request.url, system);
  ::curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, long(options.connect_timeout.count()));
  ::curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBytes);
  ::curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  ::curl_easy_setopt(easy, CURLOPT_USERAGENT, "varve/0.1");
  ::curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  ::curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange.error_text);
  ::curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &header_callback);
  ::curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  ::curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &write_callback);
  ::curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  if (request.has_body) {
    ::curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    ::curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, curl_off_t(request.body_bytes));
    ::curl_easy_setopt(easy, CURLOPT_READFUNCTION, &read_callback);
    ::curl_easy_setopt(easy, CURLOPT_READDATA, &exchange);
    ::curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, &seek_callback);
    ::curl_easy_setopt(easy, CURLOPT_SEEKDATA, &exchange);
    ::curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, kReceiveBytes);
  }
  if (request.method == "HEAD") ::curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  ::curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

// Whoever sends a byte now and then is as bad as whoever is silent: of each stretch of the stall timeout, time in sinks
// not counted, so many bytes a second are asked.
constexpr std::uint64_t kFloorBytesPerSecond = 1024;

class Throughput {
 public:
  Throughput(const Exchange& exchange, std::chrono::milliseconds stretch) : exchange_(exchange), stretch_(stretch) {}

  bool below_floor() {
    const auto now = SteadyClock::now();
    if (now - began_ - (exchange_.in_callbacks - in_callbacks_) < stretch_) return false;
    const auto moved = exchange_.sent + exchange_.received;
    const bool below = (moved - moved_) * 1000 < kFloorBytesPerSecond * std::uint64_t(stretch_.count());
    began_ = now;
    in_callbacks_ = exchange_.in_callbacks;
    moved_ = moved;
    return below;
  }

 private:
  const Exchange& exchange_;
  const std::chrono::milliseconds stretch_;
  SteadyClock::time_point began_ = SteadyClock::now();
  SteadyClock::duration in_callbacks_{};
  std::uint64_t moved_ = 0;
};

// How long an exchange that is cancelled may still take: tidying up takes some, too.
constexpr std::chrono::seconds kCancelPatience{1};

// Absent if nothing, or next to nothing, moved for too long, or if it was cancelled, which is noted in the exchange.
std::optional<CURLcode> drive(CURLM* multi, Exchange& exchange, const HttpClientOptions& options) {
  // Connecting has a limit of its own, which must be able to come first.
  const auto stall_timeout = std::max(options.stall_timeout, std::chrono::milliseconds(kPollMs));
  Throughput throughput(exchange, stall_timeout);
  std::optional<SteadyClock::time_point> cancelled;
  for (int running = 1; running > 0;) {
    if (::curl_multi_perform(multi, &running) != CURLM_OK) return CURLE_FAILED_INIT;
    if (running == 0) break;
    const bool stores = exchange.request.method == "PUT" || exchange.request.method == "PATCH";
    const bool all_sent = stores && exchange.sent == exchange.request.body_bytes;
    const auto idle = SteadyClock::now() - exchange.last_activity;
    auto look_again = std::chrono::milliseconds(kPollMs);
    if (options.first_answer.is_short()) {
      const auto left = *options.first_answer.limit - std::chrono::duration_cast<std::chrono::milliseconds>(idle);
      if (left.count() <= 0) {
        exchange.left_soon = true;
        return std::nullopt;
      }
      look_again = std::min(look_again, left);
    }
    if (idle > stall_timeout * (all_sent ? kCommitPatience : 1)) return std::nullopt;
    // Before the answer begins silence is what counts: servers think.
    if (!all_sent && exchange.head_done && throughput.below_floor()) return std::nullopt;
    if (exchange.request.stop != nullptr && exchange.request.stop->cancelled()) {
      exchange.thrown = std::make_exception_ptr(Cancelled("cancelled"));
      return std::nullopt;
    }
    if (options.cancel != nullptr && options.cancel->cancelled()) {
      if (!cancelled) cancelled = SteadyClock::now();
      if (SteadyClock::now() - *cancelled > kCancelPatience) {
        exchange.thrown = std::make_exception_ptr(Cancelled("cancelled"));
        return std::nullopt;
      }
    }
    ::curl_multi_poll(multi, nullptr, 0, int(look_again.count()), nullptr);
  }
  int left = 0;
  while (const auto* message = ::curl_multi_info_read(multi, &left))
    if (message->msg == CURLMSG_DONE) return message->data.result;
  return CURLE_FAILED_INIT;
}

}  // namespace

std::string HttpClientOptions::trust_key() const {
  auto key = fmt::format("{}\n{}", unverified_host, authorities);
  if (client) key += fmt::format("\n{}\n{}\n{}", client->host, client->certificate.string(), client->key.string());
  return key;
}

std::size_t HttpClient::count_idle(const Url& url) const { return options_.idle->count_fresh(origin_of(url)); }

HttpResponse HttpClient::exchange(const HttpRequest& request) {
  const auto where = request.method + " " + request.url.shown();
  if (options_.first_answer.is_short() && options_.first_answer.host->leave_with_others())
    throw TransportError(where + ": no answer to others just now, nor ever before", TransportError::Refused::kNothing,
                         true);
  const auto origin = origin_of(request.url);
  const bool by_tls = request.url.scheme == "https";
  auto trusted = by_tls ? SystemAuthorities::of_machine().stamps() : std::vector<FileStamp>();
  auto connection = request.fresh_connection ? nullptr : options_.idle->take(origin, trusted);
  if (!connection) connection = make_connection(origin, std::move(trusted));
  Exchange exchange(request, options_.first_answer.host.get());
  const auto headers = make_header_list(request.headers);
  SystemAuthorities::Known system;
  if (by_tls && options_.authorities.empty() && options_.unverified_host != host_and_port(request.url))
    system = SystemAuthorities::of_machine().known(may_have_tls_proxy());
  set_up(connection->easy.get(), options_, request, headers.get(), system.store.get(), exchange);
  ::curl_multi_add_handle(connection->multi.get(), connection->easy.get());
  const auto result = drive(connection->multi.get(), exchange, options_);
  ::curl_multi_remove_handle(connection->multi.get(), connection->easy.get());
  std::string reason = exchange.error_text;
  if (reason.empty() && result) reason = ::curl_easy_strerror(*result);
  const bool unknown_authority = result && is_of_unknown_authority(connection->easy.get(), *result);
  const auto advice = result ? tls_advice(unknown_authority, reason, options_) : std::string();
  ::curl_easy_reset(connection->easy.get());  // nothing may point to this frame from here on

  if (result) options_.idle->put(std::move(connection));
  // Whatever is wrong: the file may have what takes the place of a certificate that the folder has (and has expired).
  if (result == CURLE_PEER_FAILED_VERIFICATION && system.store && !system.whole) {
    SystemAuthorities::of_machine().known(true);
    return this->exchange(request);
  }
  if (exchange.thrown) std::rethrow_exception(exchange.thrown);
  if (exchange.left_soon) {
    options_.first_answer.host->note_left();
    throw TransportError(
        fmt::format("{}: no answer within {} ms, nor ever before", where, options_.first_answer.limit->count()),
        TransportError::Refused::kNothing, true);
  }
  if (!result)
    throw TransportError(fmt::format("{}: no byte, or next to none, for {} ms", where, options_.stall_timeout.count()),
                         TransportError::Refused::kNothing, !exchange.head_done);
  if (*result == CURLE_OK || exchange.enough) return std::move(exchange.response);
  // Of our two protocols libcurl supports all but HTTP/0.9, which anything is.
  if (*result == CURLE_UNSUPPORTED_PROTOCOL) throw NoHttp(fmt::format("{}: {}", where, reason));
  if (is_permanent(*result) || !advice.empty()) fail<Error>("{}: {}{}", where, reason, advice);
  throw TransportError(where + ": " + reason, refused_by(*result), !exchange.head_done);
}

}  // namespace varve::oci::internal
