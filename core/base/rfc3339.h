#pragma once
// Points in time as JSON documents name them.
#include <cstdint>
#include <string>

namespace varve {

// RFC 3339 in UTC, with as many decimals as needed (as Go writes times): "2026-11-21T18:00:00.5Z". `seconds` since
// 1970, years 0 to 9999.
std::string rfc3339(std::int64_t seconds, std::uint32_t nanoseconds = 0);

}  // namespace varve
