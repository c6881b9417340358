#include "core/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>
#include <thread>

#include "core/base/errors.h"
#include "testing/http_ask.h"
#include "testing/temp_dir.h"

namespace varve {
namespace {

using test::ask;
using test::connect_to;
using test::get;

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

HttpResponse echo(const HttpRequest& request) {
  return HttpResponse::text(
      200, request.method + " " + request.path + " " + std::string(request.header("x-name")) + " " + request.body);
}

TEST(HttpServerTest, HandsMethodPathHeadersAndBodyOn) {
  HttpServer server(ListenAddress::parse("127.0.0.1:0"), {.max_body_bytes = 100}, echo);
  EXPECT_THAT(ask(server.address(),
                  "POST /a%20b?c=d HTTP/1.1\r\nHost: x\r\nX-NAME: me\r\nConnection: close\r\n"
                  "Content-Length: 4\r\n\r\nbody"),
              EndsWith("\r\n\r\nPOST /a b me body"));
  EXPECT_THAT(ask(server.address(),
                  "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: "
                  "chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"),
              EndsWith("POST /  body"));
}

TEST(HttpServerTest, ServesAUnixSocketAndRemovesItsName) {
  const test::TempDir dir;
  const auto path = dir.path() / "http.sock";
  {
    HttpServer server(ListenAddress::parse("unix:" + path.string()), {}, echo);
    EXPECT_THAT(get(server.address(), "/x"), HasSubstr("GET /x"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(HttpServerTest, RefusesABodyThatIsTooLarge) {
  bool called = false;
  HttpServer server(ListenAddress::parse("127.0.0.1:0"), {.max_body_bytes = 8}, [&](const HttpRequest&) {
    called = true;
    return HttpResponse();
  });
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
  EXPECT_THAT(ask(server.address(), head + "Content-Length: 9\r\n\r\n123456789"), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(ask(server.address(), head + "Content-Length: 99999999999999999999999\r\n\r\n"),
              StartsWith("HTTP/1.1 4"));
  EXPECT_EQ(ask(server.address(), head + "Transfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n"), "");
  EXPECT_FALSE(called);
}

TEST(HttpServerTest, RefusesAHeadThatIsTooLarge) {
  HttpServer server(ListenAddress::parse("127.0.0.1:0"), {}, echo);
  EXPECT_THAT(ask(server.address(), "GET / HTTP/1.1\r\nX: " + std::string(100'000, 'a') + "\r\n\r\n"),
              ::testing::AnyOf(StartsWith("HTTP/1.1 4"), ::testing::IsEmpty()));
  EXPECT_THAT(get(server.address(), "/still"), HasSubstr("GET /still"));
}

TEST(HttpServerTest, AnswersWhatIsThrownWithoutItsText) {
  HttpServer server(ListenAddress::parse("127.0.0.1:0"), {}, [](const HttpRequest& request) -> HttpResponse {
    if (request.path == "/later") throw TemporaryError("secret");
    throw Error("secret");
  });
  EXPECT_THAT(get(server.address(), "/later"), StartsWith("HTTP/1.1 503"));
  const auto answer = get(server.address(), "/");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(answer, ::testing::Not(HasSubstr("secret")));
}

TEST(HttpServerTest, WaitsAtItsEndForAnAnswerUnderWay) {
  std::latch asked(1);
  std::latch go_on(1);
  HttpServer server(ListenAddress::parse("127.0.0.1:0"), {.threads = 2}, [&](const HttpRequest&) {
    asked.count_down();
    go_on.wait();
    return HttpResponse::text(200, "done");
  });
  std::string answer;
  std::jthread client([&] { answer = get(server.address(), "/"); });
  asked.wait();
  std::jthread end([&] { server.stop(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the end has begun, as far as one can tell
  go_on.count_down();
  client.join();
  EXPECT_THAT(answer, EndsWith("done"));
}

TEST(HttpServerTest, ConnectionsThatSayNothingKeepNobodyOut) {
  HttpServer server(ListenAddress::parse("127.0.0.1:0"), {.max_connections = 4, .silence = std::chrono::seconds(1)},
                    echo);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(connect_to(server.address()));
  EXPECT_THAT(get(server.address(), "/x"), HasSubstr("GET /x"));  // once they are closed
}

// 127.0.0.2 is as far away as 127.0.0.1, and another peer.
UniqueFd connect_from(const char* peer, const ListenAddress& address) {
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  to.sin_port = htons(address.port);
  ::inet_pton(AF_INET, peer, &from.sin_addr);
  ::inet_pton(AF_INET, address.host.c_str(), &to.sin_addr);
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) != 0 ||
      ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
    throw std::runtime_error("connect from " + std::string(peer) + ": " + std::strerror(errno));
  return socket;
}

// On a connection that goes on; "" if it was closed instead.
std::string get_on(const UniqueFd& socket) {
  test::say(socket, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  std::array<char, 4096> piece{};
  const auto got = ::recv(socket.get(), piece.data(), piece.size(), 0);
  return {piece.data(), std::size_t(std::max<ssize_t>(got, 0))};
}

TEST(HttpServerTest, OnePeerAtItsLimitIsClosedAtOnceAndKeepsNobodyOut) {
  HttpServer server(ListenAddress::parse("127.0.0.1:0"),
                    {.max_connections = 32, .max_of_peer = 3, .silence = std::chrono::hours(1), .threads = 4},
                    [](const HttpRequest& request) { return HttpResponse::text(200, "from " + request.peer); });
  std::vector<UniqueFd> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(connect_from("127.0.0.2", server.address()));
    ASSERT_THAT(get_on(held.back()), EndsWith("from 127.0.0.2"));
  }
  // Many more than all may have: none of them is left waiting, or counted.
  for (int i = 0; i < 200; ++i) ASSERT_EQ(get_on(connect_from("127.0.0.2", server.address())), "") << i;
  EXPECT_THAT(get_on(connect_from("127.0.0.3", server.address())), EndsWith("from 127.0.0.3"));
  EXPECT_THAT(get_on(held[0]), EndsWith("from 127.0.0.2")) << "what it has goes on";
  held.pop_back();
  std::string answer;
  while (answer.empty()) answer = get_on(connect_from("127.0.0.2", server.address()));  // once the server has seen it
  EXPECT_THAT(answer, EndsWith("from 127.0.0.2"));
}

TEST(HttpServerTest, ForgetsNoConnectionOfAPeerThatComesAndGoes) {
  HttpServer server(ListenAddress::parse("127.0.0.1:0"), {.max_of_peer = 8, .threads = 4}, echo);
  std::vector<std::jthread> clients;
  std::atomic<int> answered = 0;
  for (int client = 0; client < 4; ++client)
    clients.emplace_back([&] {
      for (int i = 0; i < 300; ++i) answered += !get(server.address(), "/x").empty();
    });
  clients.clear();
  EXPECT_GT(answered, 0);
  // Had any been counted twice, or never counted off, nobody would be let in by now, or any number.
  std::vector<UniqueFd> held;
  while (held.size() < 8) {
    auto next = connect_to(server.address());
    if (!get_on(next).empty()) held.push_back(std::move(next));
  }
  EXPECT_EQ(get_on(connect_to(server.address())), "");
}

TEST(HttpServerTest, AtAUnixSocketNobodyIsAPeer) {
  const test::TempDir dir;
  HttpServer server(ListenAddress::parse("unix:" + (dir.path() / "http.sock").string()), {.max_of_peer = 1}, echo);
  const auto one = connect_to(server.address());
  EXPECT_THAT(get_on(one), HasSubstr("GET /x"));
  EXPECT_THAT(get(server.address(), "/y"), HasSubstr("GET /y"));
}

}  // namespace
}  // namespace varve
