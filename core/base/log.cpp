#include "core/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace varve::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// spdlog's own default logger writes to stdout, which belongs to results.
std::shared_ptr<spdlog::logger>& logger() {
  static auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("varve", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%l%$: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return instance;
}

}  // namespace

void set_level(Level level) { logger()->set_level(to_spdlog(level)); }

void write_to_file(const std::string& path) {
  auto made = std::make_shared<spdlog::logger>("varve", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
  made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  made->set_level(logger()->level());
  made->flush_on(spdlog::level::info);
  logger() = std::move(made);
}

void write(Level level, std::string_view message) { logger()->log(to_spdlog(level), message); }

bool enabled(Level level) { return logger()->should_log(to_spdlog(level)); }

}  // namespace varve::log
