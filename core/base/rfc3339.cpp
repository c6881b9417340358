#include "core/base/rfc3339.h"

#include <fmt/format.h>

#include <ctime>

namespace varve {

std::string rfc3339(std::int64_t seconds, std::uint32_t nanoseconds) {
  const auto time = std::time_t(seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  auto text = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                          parts.tm_hour, parts.tm_min, parts.tm_sec);
  if (nanoseconds != 0) {
    text += fmt::format(".{:09}", nanoseconds);
    text.erase(text.find_last_not_of('0') + 1);
  }
  return text + "Z";
}

}  // namespace varve
