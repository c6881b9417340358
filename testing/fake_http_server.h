#pragma once
// A small HTTP/1.1 server on 127.0.0.1 whose answers can be broken in all the ways that networks break them.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/files/unique_fd.h"

namespace varve::test {

struct FakeHttpRequest {
  std::string method;
  std::string path;                            // without the query, not decoded
  std::map<std::string, std::string> query;    // decoded; of repeated names the values are joined by spaces
  std::map<std::string, std::string> headers;  // names in lower case
  Bytes body;

  std::string header(const std::string& lower_case_name) const {
    const auto found = headers.find(lower_case_name);
    return found == headers.end() ? std::string() : found->second;
  }
};

struct FakeHttpResponse {
  int status = 200;
  std::vector<std::string> headers = {};  // "Name: value"; Content-Length is added unless no_length
  std::shared_ptr<const Bytes> body = {};
  ByteRange part = {};  // of the body; what is sent

  // Breakage: after `break_after` bytes of the part the connection ends (kClose), ends with a reset, or says nothing
  // more until the client gives up (kStall), or says a byte now and then (kDrip).
  enum class Break { kNone, kClose, kReset, kStall, kDrip };
  Break breaks = Break::kNone;
  std::uint64_t break_after = 0;
  bool no_length = false;  // no Content-Length: the end of the connection is the end of the body

  void set_body(Bytes bytes) {
    body = std::make_shared<const Bytes>(std::move(bytes));
    part = {.offset = 0, .length = body->size()};
  }
  void set_body(std::string_view text) { set_body(to_bytes(as_bytes(text))); }
};

// Calls the handler from a thread per connection. Stops, also stalled answers, when destroyed.
class FakeHttpServer {
 public:
  using Handler = std::function<FakeHttpResponse(const FakeHttpRequest&)>;
  explicit FakeHttpServer(Handler handler);
  ~FakeHttpServer();
  FakeHttpServer(const FakeHttpServer&) = delete;
  FakeHttpServer& operator=(const FakeHttpServer&) = delete;

  std::uint16_t port() const { return port_; }
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  std::size_t connections() const { return connections_; }  // accepted so far
  // Ends everything, as when the machine goes away; connections are refused from now on.
  void stop();

 private:
  void accept_connections();
  void serve(int fd);
  bool answer(int fd, const FakeHttpRequest& request, const FakeHttpResponse& response);

  Handler handler_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::atomic<std::size_t> connections_ = 0;
  std::mutex mutex_;  // guards what follows
  bool stopping_ = false;
  struct Client {
    UniqueFd fd;
    std::thread thread;
  };
  std::list<Client> clients_;
  std::thread acceptor_;
};

}  // namespace varve::test
