#include "testing/fake_http_server.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "core/base/errors.h"

namespace varve::test {
namespace {

constexpr std::size_t kMaxHeadBytes = 64 * 1024;
constexpr std::size_t kMaxBodyBytes = std::size_t(1) << 31;
constexpr std::size_t kSendBytes = 256 * 1024;

// Reads one connection, with what came too early kept for the next request.
class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {}

  // Absent at the end of the connection.
  std::optional<std::string> line() {
    while (true) {
      const auto end = buffer_.find("\r\n");
      if (end != std::string::npos) {
        auto text = buffer_.substr(0, end);
        buffer_.erase(0, end + 2);
        return text;
      }
      if (buffer_.size() > kMaxHeadBytes || !fill()) return std::nullopt;
    }
  }
  bool begins_with_a_letter() {
    return (!buffer_.empty() || fill()) && std::isalpha(static_cast<unsigned char>(buffer_[0]));
  }
  bool exactly(std::size_t length, Bytes& into) {
    const auto early = std::min(length, buffer_.size());
    into = to_bytes(as_bytes(std::string_view(buffer_).substr(0, early)));
    buffer_.erase(0, early);
    into.resize(length);
    for (auto done = early; done < length;) {
      const auto got = ::recv(fd_, into.data() + done, length - done, 0);
      if (got <= 0) return false;
      done += std::size_t(got);
    }
    return true;
  }

 private:
  bool fill() {
    char bytes[64 * 1024];
    const auto got = ::recv(fd_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    buffer_.append(bytes, std::size_t(got));
    return true;
  }
  int fd_;
  std::string buffer_;
};

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

std::string decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      plain += char(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      plain += text[i] == '+' ? ' ' : text[i];
    }
  }
  return plain;
}

void parse_target(std::string_view target, FakeHttpRequest& request) {
  const auto question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question == std::string_view::npos) return;
  for (auto rest = target.substr(question + 1); !rest.empty();) {
    const auto item = rest.substr(0, rest.find('&'));
    const auto equals = item.find('=');
    auto& value = request.query[decoded(item.substr(0, equals))];
    if (!value.empty()) value += ' ';
    if (equals != std::string_view::npos) value += decoded(item.substr(equals + 1));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  }
}

std::optional<FakeHttpRequest> read_request(Reader& reader) {
  // Anything but a method, such as the greeting of a TLS client, ends the connection.
  if (!reader.begins_with_a_letter()) return std::nullopt;
  const auto first = reader.line();
  if (!first) return std::nullopt;
  const auto space = first->find(' ');
  const auto second = first->rfind(' ');
  if (space == std::string::npos || second <= space || !first->substr(second + 1).starts_with("HTTP/1."))
    return std::nullopt;
  FakeHttpRequest request;
  request.method = first->substr(0, space);
  parse_target(std::string_view(*first).substr(space + 1, second - space - 1), request);
  while (true) {
    const auto line = reader.line();
    if (!line) return std::nullopt;
    if (line->empty()) break;
    const auto colon = line->find(':');
    if (colon == std::string::npos) return std::nullopt;
    auto value = line->substr(colon + 1);
    value.erase(0, value.find_first_not_of(' '));
    request.headers[lower_case(line->substr(0, colon))] = value;
  }
  const auto length = request.header("content-length");
  const auto bytes = length.empty() ? 0 : std::stoull(length);
  if (bytes > kMaxBodyBytes || !reader.exactly(bytes, request.body)) return std::nullopt;
  return request;
}

bool send_all(int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const auto sent = ::send(fd, bytes.data(), std::min(bytes.size(), kSendBytes), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(std::size_t(sent));
  }
  return true;
}

void wait_for_client_to_go(int fd) {
  char byte;
  while (::recv(fd, &byte, 1, 0) > 0) {
  }
}

void drip_until_client_goes(int fd) {
  const std::byte drop{};
  while (send_all(fd, {&drop, 1})) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

void reset_on_close(int fd) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace

FakeHttpServer::FakeHttpServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (!listener_ || ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener_.get(), 128) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    fail_errno("listen on 127.0.0.1");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_connections(); });
}

FakeHttpServer::~FakeHttpServer() { stop(); }

void FakeHttpServer::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    for (auto& client : clients_) ::shutdown(client.fd.get(), SHUT_RDWR);
  }
  acceptor_.join();
  for (auto& client : clients_) client.thread.join();
  clients_.clear();
  listener_.reset();
}

void FakeHttpServer::accept_connections() {
  while (true) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::lock_guard lock(mutex_);
    if (stopping_ || !fd) return;
    ++connections_;
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto& client = clients_.emplace_back();
    client.fd = std::move(fd);
    client.thread = std::thread([this, raw = client.fd.get()] { serve(raw); });
  }
}

void FakeHttpServer::serve(int fd) {
  Reader reader(fd);
  while (const auto request = read_request(reader))
    if (!answer(fd, *request, handler_(*request))) break;
  // The descriptor itself is closed by stop(): until then its number must not come back for another connection.
  ::shutdown(fd, SHUT_RDWR);
}

bool FakeHttpServer::answer(int fd, const FakeHttpRequest& request, const FakeHttpResponse& response) {
  using Break = FakeHttpResponse::Break;
  const auto length = response.body ? response.part.length : 0;
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " Fake\r\n";
  for (const auto& header : response.headers) head += header + "\r\n";
  const bool has_length = std::any_of(response.headers.begin(), response.headers.end(),
                                      [](const auto& h) { return lower_case(h).starts_with("content-length:"); });
  if (response.no_length)
    head += "Connection: close\r\n";
  else if (!has_length && response.status != 204)
    head += "Content-Length: " + std::to_string(length) + "\r\n";
  head += "\r\n";

  auto body = response.body ? ByteView(*response.body).subspan(response.part.offset, length) : ByteView();
  if (request.method == "HEAD") body = {};
  if (response.breaks != Break::kNone) body = body.first(std::min<std::uint64_t>(body.size(), response.break_after));
  const bool says_nothing = response.breaks != Break::kNone && response.break_after == 0;
  if (!says_nothing && (!send_all(fd, as_bytes(head)) || !send_all(fd, body))) return false;
  switch (response.breaks) {
    case Break::kNone:
      return !response.no_length;
    case Break::kClose:
      return false;
    case Break::kReset: {
      // A reset is sent when the last descriptor of the connection closes without lingering; connecting to nothing does
      // it at once.
      reset_on_close(fd);
      sockaddr nothing{};
      nothing.sa_family = AF_UNSPEC;
      ::connect(fd, &nothing, sizeof nothing);
      return false;
    }
    case Break::kStall:
      wait_for_client_to_go(fd);
      return false;
    case Break::kDrip:
      drip_until_client_goes(fd);
      return false;
  }
  return false;
}

}  // namespace varve::test
