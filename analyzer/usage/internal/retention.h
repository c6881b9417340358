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

// In many transactions, between which others write; killed after any of them, it goes on with the next call.
AgeResult age_out(Writer& writer, const Retention& retention, std::int32_t today, const CancelFlag& cancel);

// The last day whose sessions are refused; a day before all others if there is none.
std::int32_t refused_through(SqlConnection& sql);
// No session of this day or one before it is taken in from now on. Within a write transaction.
void refuse_through(SqlConnection& sql, std::int32_t day);

}  // namespace varve::usage
