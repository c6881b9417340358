#pragma once
// A small HTTP/1.1 server, without TLS: what is to be seen from afar stands behind a proxy that has it.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/http/listen_address.h"

namespace varve {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query, decoded
  std::string body;
  std::map<std::string, std::string> headers;  // by name in lower case; of one that comes twice, the first
  std::string peer = {};                       // who asks (core/http/peer.h)

  // "" if it did not come; the name in lower case.
  std::string_view header(const std::string& name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};

  static HttpResponse text(int status, std::string body);
  static HttpResponse method_not_allowed(const std::string& allowed);  // 405
};

struct HttpServerOptions {
  unsigned max_connections = 64;      // further ones wait to be accepted
  unsigned max_of_peer = 0;           // connections of one peer: further ones are closed at once; 0: no limit
  std::uint64_t max_body_bytes = 0;   // a larger one is 413, or the end of the connection if it does not say its size
  std::chrono::seconds silence{10};   // a connection on which nothing moves for so long is closed
  std::chrono::seconds patience{30};  // a request that has not come whole by then is
  unsigned threads = 1;               // requests that are answered at the same time
};

class HttpServer {
 public:
  // Called from threads of the server. What it throws is logged and answered with 500, TemporaryError with 503.
  using Handler = std::function<HttpResponse(const HttpRequest& request)>;

  // Listens at once. Throws as listen_on().
  HttpServer(ListenAddress address, const HttpServerOptions& options, Handler handler);
  // As stop().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // No new connections; waits for the answers under way, and closes the rest. A unix socket's name goes.
  void stop();
  // With the port that was chosen.
  const ListenAddress& address() const { return address_; }

 private:
  struct Parts;
  ListenAddress address_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace varve
