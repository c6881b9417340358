#pragma once
// The tables of the usage database and how an older one becomes the current one. Described in
// docs/formats/usage-database.md.
#include <cstdint>
#include <span>
#include <string_view>

#include "core/sql/schema.h"

namespace varve::usage {

inline constexpr std::int64_t kSchemaVersion = 7;

// What open_sql() must be told to open a usage database.
const SqlDatabaseKind& usage_kind();

// One per version, in their order.
std::span<const std::string_view> schema_scripts();
// Makes the tables, or brings those of an older version up to date (core/sql/schema.h).
void migrate(SqlConnection& sql);

}  // namespace varve::usage
