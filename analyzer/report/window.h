#pragma once
// The spans of days that people write: "90d", "12w", "2y", "2026-01-01..2026-06-30".
#include <string_view>

#include "analyzer/usage/snapshot.h"

namespace varve::report {

// N days, weeks (7 days) or years (365 days) up to and with `today`; or two days, both included. Throws UsageError
// saying what is wrong.
usage::DayRange parse_window(std::string_view text, std::int32_t today);

}  // namespace varve::report
