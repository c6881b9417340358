#include "cli/base/metrics_option.h"

#include "core/metrics/metrics_server.h"

namespace varve::cli {

void add_metrics_option(CLI::App& command, std::string& address) {
  command
      .add_option("--metrics", address,
                  "Show metrics for Prometheus at unix:/PATH or 127.0.0.1:PORT, never beyond this machine; without it "
                  "there are none")
      ->type_name("ADDRESS")
      ->check([](const std::string& text) -> std::string {
        try {
          if (!text.empty()) parse_metrics_address(text);
          return {};
        } catch (const std::exception& error) {
          return error.what();
        }
      });
}

}  // namespace varve::cli
