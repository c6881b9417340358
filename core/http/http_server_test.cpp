#include "core/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace varve
