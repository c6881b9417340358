#pragma once
// --metrics, of programs that run for long.
#include <string>

#include <CLI/App.hpp>

namespace varve::cli {

// `address` is "", or what parse_metrics_address() (core/metrics/metrics_server.h) takes.
void add_metrics_option(CLI::App& command, std::string& address);

}  // namespace varve::cli
