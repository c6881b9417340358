#pragma once
// On a server the large tables are partitioned by month: counts per day by day, rows of single sessions by the number
// of the session, whose numbers begin anew (month << 32) with each month. What is old goes as a whole partition.
#include <cstdint>

#include "core/sql/connection.h"

namespace varve::usage {

// The month whose partition has the rows of the session of this number.
std::int32_t month_of_session(std::int64_t id);

// Makes the partitions up to `month`, within a write transaction. Those before the first one are one partition.
void make_partitions(SqlConnection& sql, std::int32_t month);

// Removes partitions in which nothing is left that counts, one at a time and outside of transactions: who reads is not
// kept waiting. Killed on the way, it is taken up by the next call. Returns how many.
std::uint64_t drop_partitions(SqlConnection& sql);

}  // namespace varve::usage
