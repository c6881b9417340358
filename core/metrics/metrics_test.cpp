#include "core/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/base/errors.h"
#include "core/metrics/metrics_server.h"
#include "testing/http_ask.h"

namespace varve {
namespace {

using test::ask;
using test::get;

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(MetricsTest, AreWrittenAsPrometheusReadsThem) {
  MetricRegistry registry;
  registry.counter({.name = "varve_fetched_bytes_total", .help = "Bytes \\ from\nall.", .labels = {"source"}})
      .of({"a \"quoted\\\" \nname"})
      .add(7);
  registry.gauge({.name = "varve_store_bytes", .help = "Size."})->set(1.5);
  auto& times =
      registry.histogram({.name = "varve_fetch_seconds", .help = "Times.", .labels = {"source"}, .bounds = {0.5, 1}});
  for (const double value : {0.25, 0.5, 0.75, 2.0}) times.of({"mirror"}).observe(value);
  EXPECT_EQ(registry.text(),
            "# HELP varve_fetch_seconds Times.\n"
            "# TYPE varve_fetch_seconds histogram\n"
            "varve_fetch_seconds_bucket{source=\"mirror\",le=\"0.5\"} 2\n"
            "varve_fetch_seconds_bucket{source=\"mirror\",le=\"1\"} 3\n"
            "varve_fetch_seconds_bucket{source=\"mirror\",le=\"+Inf\"} 4\n"
            "varve_fetch_seconds_sum{source=\"mirror\"} 3.5\n"
            "varve_fetch_seconds_count{source=\"mirror\"} 4\n"
            "# HELP varve_fetched_bytes_total Bytes \\\\ from\\nall.\n"
            "# TYPE varve_fetched_bytes_total counter\n"
            "varve_fetched_bytes_total{source=\"a \\\"quoted\\\\\\\"  name\"} 7\n"
            "# HELP varve_store_bytes Size.\n"
            "# TYPE varve_store_bytes gauge\n"
            "varve_store_bytes 1.5\n");
}

TEST(MetricsTest, NeverHaveMoreSeriesThanTheyMay) {
  MetricRegistry registry;
  auto& starts =
      registry.counter({.name = "varve_starts_total", .help = "Starts.", .labels = {"image", "kind"}, .max_series = 3});
  for (int i = 0; i < 1000; ++i) starts.of({"image " + std::to_string(i), "cold"}).add();
  starts.of({"image 1", "cold"}).add();
  std::map<std::vector<std::string>, std::uint64_t> values;
  starts.for_each([&](const auto& labels, const Counter& counter) { values[labels] = counter.value(); });
  EXPECT_EQ(values, (std::map<std::vector<std::string>, std::uint64_t>{
                        {{"image 0", "cold"}, 1}, {{"image 1", "cold"}, 2}, {{"other", "other"}, 998}}));
}

TEST(MetricsTest, CutAndCleanWhatComesAsALabel) {
  MetricRegistry registry;
  auto& errors = registry.counter({.name = "varve_errors_total", .help = "Errors.", .labels = {"origin"}});
  errors.of({std::string(100'000, 'x')}).add();
  errors.of({"\xff\x1b[31m"}).add();
  const auto text = registry.text();
  EXPECT_LT(text.size(), 600u);
  EXPECT_EQ(text.find('\x1b'), text.npos);
  EXPECT_EQ(text.find('\xff'), text.npos);
}

TEST(MetricsTest, RefuseNamesThatPrometheusDoesNotKnow) {
  MetricRegistry registry;
  for (const auto* name : {"", "1varve", "varve-x_total", "varve x_total", "varve_x"})
    EXPECT_THROW(registry.counter({.name = name, .help = "x"}), Error) << name;
  EXPECT_THROW(registry.counter({.name = "a_total", .help = ""}), Error);
  EXPECT_THROW(registry.counter({.name = "a_total", .help = "x", .labels = {"__name__"}}), Error);
  EXPECT_THROW(registry.histogram({.name = "a_seconds", .help = "x", .labels = {"le"}, .bounds = {1}}), Error);
  EXPECT_THROW(registry.histogram({.name = "a_seconds", .help = "x", .bounds = {1, 1}}), Error);
  EXPECT_THROW(registry.histogram({.name = "a_seconds", .help = "x"}), Error);
  EXPECT_NO_THROW(registry.gauge({.name = "a_bytes", .help = "x"}));
  EXPECT_THROW(registry.histogram({.name = "a_bytes", .help = "x", .bounds = {1}}), Error);
  auto& labelled = registry.gauge({.name = "b_bytes", .help = "x", .labels = {"a"}});
  EXPECT_THROW(labelled.of({}), Error);
  EXPECT_THROW(labelled.of({"1", "2"}), Error);
}

TEST(MetricsTest, ManyThreadsLoseNothing) {
  MetricRegistry registry;
  auto& counts = registry.counter({.name = "varve_x_total", .help = "x", .labels = {"n"}, .max_series = 4});
  auto& times = *registry.histogram({.name = "varve_x_seconds", .help = "x", .bounds = duration_bounds()});
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) {
          counts.of({std::to_string(i % 10)}).add();
          times.observe(0.5);
          if (i % 250 == 0) registry.text();
        }
      });
  }
  std::uint64_t sum = 0;
  counts.for_each([&](const auto&, const Counter& counter) { sum += counter.value(); });
  EXPECT_EQ(sum, 8000u);
  EXPECT_EQ(times.sum(), 4000);
}

TEST(MetricsServerTest, AnswersMetricsAndNothingElse) {
  MetricRegistry registry;
  auto& bytes = *registry.gauge({.name = "varve_store_bytes", .help = "Size."});
  int asked = 0;
  registry.before_text([&] { bytes.set(++asked); });
  const MetricsServer server(parse_metrics_address("127.0.0.1:0"), registry);
  const auto answer = get(server.address(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("varve_store_bytes 1\n"));
  EXPECT_THAT(get(server.address(), "/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask(server.address(), "DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(ask(server.address(), "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"),
              StartsWith("HTTP/1.1 413"));
}

TEST(MetricsServerTest, IsForThisMachineAlone) {
  for (const auto* text : {"0.0.0.0:9100", "192.0.2.1:9100", "[::]:9100"})
    EXPECT_THROW(parse_metrics_address(text), UsageError) << text;
  EXPECT_EQ(parse_metrics_address("unix:/run/varve/metrics.sock").socket, "/run/varve/metrics.sock");
}

}  // namespace
}  // namespace varve
