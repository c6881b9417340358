#pragma once
// Shows the numbers of a program to who asks over HTTP: GET /metrics.
#include <optional>

#include "core/http/http_server.h"
#include "core/metrics/metrics.h"

namespace varve {

// The answer to GET /metrics.
HttpResponse metrics_response(MetricRegistry& registry);

// As a setting says it: "unix:/PATH", or "127.0.0.1:PORT" and other addresses of this machine alone. Throws UsageError
// for anything else: what a daemon does is not for everybody on the network to see.
ListenAddress parse_metrics_address(std::string_view text);

// Serves until it is destroyed. Throws std::system_error if it cannot listen there.
class MetricsServer {
 public:
  MetricsServer(const ListenAddress& address, MetricRegistry& registry);
  const ListenAddress& address() const { return server_.address(); }

 private:
  HttpServer server_;
};

}  // namespace varve
