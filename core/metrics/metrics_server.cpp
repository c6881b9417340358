#include "core/metrics/metrics_server.h"

#include "core/base/errors.h"

namespace varve {
namespace {

HttpResponse answer(const HttpRequest& request, MetricRegistry& registry) {
  if (request.path != "/metrics") return HttpResponse::text(404, "there is only /metrics here\n");
  if (request.method != "GET") return HttpResponse::method_not_allowed("GET");
  return metrics_response(registry);
}

}  // namespace

HttpResponse metrics_response(MetricRegistry& registry) {
  return {.status = 200, .content_type = MetricRegistry::kContentType, .body = registry.text(), .headers = {}};
}

ListenAddress parse_metrics_address(std::string_view text) {
  auto address = ListenAddress::parse(text);
  if (!address.is_of_this_machine())
    fail<UsageError>(
        "{}: metrics are shown on this machine only; use unix:/PATH or 127.0.0.1:PORT, and a proxy with "
        "authentication for others",
        text);
  return address;
}

MetricsServer::MetricsServer(const ListenAddress& address, MetricRegistry& registry)
    : server_(address, {.max_connections = 16, .max_body_bytes = 0},
              [&registry](const HttpRequest& request) { return answer(request, registry); }) {}

}  // namespace varve
