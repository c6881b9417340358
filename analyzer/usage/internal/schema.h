#pragma once
// The tables of the usage database and how an older one becomes the current one. Described in docs/format-usage-database.md.
#include <cstdint>
#include <string>

#include "analyzer/usage/internal/sql.h"

namespace varve::usage {

inline constexpr std::int64_t kSchemaVersion = 1;

// Makes the tables, or brings those of an older version up to date, in one transaction. Throws Unsupported on a newer version, CorruptData
// where the database holds tables of somebody else.
void migrate(SqlConnection& sql);

// "" if it was never set.
std::string read_setting(SqlConnection& sql, const std::string& name);
void write_setting(SqlConnection& sql, const std::string& name, const std::string& value);

}  // namespace varve::usage
