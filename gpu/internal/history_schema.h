#pragma once
// The tables of the GPU history, and their rows as text. Described in docs/formats/gpu-history.md.
#include <array>
#include <string>
#include <string_view>

#include "core/base/digest.h"
#include "core/sql/schema.h"
#include "gpu/check_result.h"

namespace varve::gpu {

inline constexpr std::int64_t kHistorySchemaVersion = 1;

// What gpu_sample.state says.
enum class SampleState : std::int64_t {
  kUsed = 0,
  kThrottled = 1,  // the clocks were held back
  kSpare = 2,      // the hour has kMaxHourSamples already
};
// An hour of a fleet: more make its median no better.
inline constexpr std::int64_t kMaxHourSamples = 1024;

const SqlDatabaseKind& history_kind();
void migrate_history(SqlConnection& sql);

// PostgreSQL takes neither a zero byte nor bytes that are not UTF-8, and what a step said may have both. Cut after
// `most` bytes.
std::string stored_text(std::string_view text, std::size_t most);

// Of all that a run says: two runs with the same are one.
Digest content_key(const RunIdentity& run, const std::vector<StepResult>& results);

}  // namespace varve::gpu
