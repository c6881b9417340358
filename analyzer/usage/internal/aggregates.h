#pragma once
// The daily tables as sums over sessions: what one session adds to them, and the difference that a change of one
// session makes.
#include <array>
#include <compare>
#include <cstdint>
#include <map>

#include "core/sql/connection.h"

namespace varve::usage {

enum class DailyTable : std::uint8_t { kSession, kUse, kModule, kEdge, kFailed, kReinstall, kGpuModel };
inline constexpr std::size_t kDailyTables = 7;
inline constexpr std::size_t kMaxDailyCounts = 8;

// Columns of DailyTable::kSession and kUse, in the order of the schema; the other tables have only `sessions`.
struct SessionCounts {
  enum : std::uint8_t {
    kLaunched,
    kHeard,
    kGpu,
    kGpuUsed,
    kGpuUnusedSeconds,
    kGpuIdleSeconds,
    kGpuIncapable,
    kGpuIncapableSeconds
  };
};
struct UseCounts {
  enum : std::uint8_t {
    kSessions,
    kDirect,
    kTransitiveOnly,
    kStatic,
    kImageCopy,
    kSessionCopy,
    kFileSessions,
    kExecSessions
  };
};

struct DailyKey {
  DailyTable table = DailyTable::kSession;
  std::int64_t day = 0;
  std::int64_t image_id = 0;
  std::int64_t a = 0, b = 0;  // the further key columns; 0 where the table has none
  auto operator<=>(const DailyKey&) const = default;
};
using DailyCounts = std::array<std::int64_t, kMaxDailyCounts>;

// What one session, or a difference of sessions, adds.
using Contribution = std::map<DailyKey, DailyCounts>;

// into += sign * what.
void add_contribution(Contribution& into, const Contribution& what, std::int64_t sign);

// Adds the differences to the tables; rows that become all zero are removed. Within a write transaction.
void write_contribution(SqlConnection& sql, const Contribution& difference);

}  // namespace varve::usage
