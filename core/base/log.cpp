#include "core/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <syslog.h>

#include <atomic>
#include <memory>

#include "core/base/journal.h"
#include "core/base/journal_line.h"

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

int to_syslog(Level level) {
  switch (level) {
    case Level::kDebug:
      return LOG_DEBUG;
    case Level::kInfo:
      return LOG_INFO;
    case Level::kWarn:
      return LOG_WARNING;
    case Level::kError:
      return LOG_ERR;
  }
  return LOG_ERR;
}

std::atomic<bool> in_journal = false;

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
  in_journal = false;
}

void use_journal_if_there() { in_journal = standard_error_is_journal(); }

void write(Level level, std::string_view message) {
  if (!enabled(level) || (in_journal && send_to_journal(to_syslog(level), message))) return;
  logger()->log(to_spdlog(level), message);
}

bool enabled(Level level) { return logger()->should_log(to_spdlog(level)); }

}  // namespace varve::log
