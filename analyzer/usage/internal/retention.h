#pragma once
// What is removed when it gets old.
#include <cstdint>

#include "analyzer/usage/database.h"
#include "analyzer/usage/internal/writer.h"

namespace varve::usage {

// Files of sessions whose raw rows were removed are remembered this many times longer than these, so that the same
// spool, collected again, is still known. Sessions older than that are refused: whether they were counted before cannot
// be told any more.
inline constexpr std::int32_t kRememberedTimes = 4;

void age_out(Writer& writer, const Retention& retention, std::int32_t today);

// The last day whose sessions are refused; a day before all others if there is none.
std::int32_t refused_through(SqlConnection& sql);

}  // namespace varve::usage
