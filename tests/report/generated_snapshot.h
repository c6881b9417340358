#pragma once
// Snapshots to make reports from: one like a real fleet's, always the same for the same numbers, and one whose every
// name is hostile.
#include <cstdint>

#include "analyzer/usage/snapshot.h"

namespace varve::report_test {

struct FleetShape {
  std::uint32_t distributions = 300;
  std::uint32_t images = 12;
  std::int32_t days = 365;
  std::uint32_t sessions_per_day = 400;
  std::uint32_t seed = 1;
};

inline constexpr std::int32_t kToday = 20'778;  // 2026-11-21

usage::Snapshot fleet_snapshot(const FleetShape& shape);

// Markup, quotes, direction overrides, bytes that are not UTF-8, formulas and a name of 100,000 characters, wherever a
// name may stand.
usage::Snapshot hostile_snapshot();

}  // namespace varve::report_test
