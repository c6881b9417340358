#pragma once
// Diagnostics to stderr or a log file. Never credentials, tokens or URLs with a query.
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace varve::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// What the program decides once at its start; before that warnings and errors go to stderr.
void set_level(Level level);
// Appends to the file from now on; for the daemon.
void write_to_file(const std::string& path);
void write(Level level, std::string_view message);
bool enabled(Level level);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug)) write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace varve::log
