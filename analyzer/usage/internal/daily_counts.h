#pragma once
// The daily tables are sums over sessions, and the user sketches what these sessions' users are.
#include <array>
#include <cstdint>
#include <span>

#include "core/sql/connection.h"

namespace varve::usage {

inline constexpr std::array kDailyTables{"daily_session", "daily_use",       "daily_module",   "daily_edge",
                                         "daily_failed",  "daily_reinstall", "daily_gpu_model"};

// Adds (sign 1) or takes out (sign -1) what these sessions are now. Their modules have their owners in `module_owner`.
void count_sessions(SqlConnection& sql, std::span<const SqlValue> session_ids, int sign);
// Adds the users of these sessions; users are never taken out.
void count_users(SqlConnection& sql, std::span<const SqlValue> session_ids);
// user_sketch.users, and the sketches over all images, of a database of before version 6.
void count_sketched_users(SqlConnection& sql);

// daily_use.files_only of a database of before version 4, in these steps; the second and fourth for all sessions that
// are kept. Of sessions that are gone only the day's sums are left: as many as opened its files and cannot be those
// that loaded it.
void begin_files_only(SqlConnection& sql);
void take_kept_from_files_only(SqlConnection& sql, std::span<const SqlValue> session_ids);
void end_gone_of_files_only(SqlConnection& sql);
void add_kept_to_files_only(SqlConnection& sql, std::span<const SqlValue> session_ids);

// Removes what became all zero.
void remove_zeros(SqlConnection& sql, std::int64_t day);

}  // namespace varve::usage
