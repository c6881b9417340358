#pragma once
// How an empty or older database gets the tables that this program knows, and the table of settings in which the
// version of its schema is kept.
#include <span>
#include <string>
#include <string_view>

#include "core/sql/connection.h"

namespace varve {

// One script per version; the first makes the tables in an empty database. A script that was released is never changed:
// what comes after goes into a new one. All that are missing run in one transaction, once, however many programs open
// the database. Throws Unsupported on a newer version, CorruptData where an SQLite file holds tables of somebody else.
void migrate_schema(SqlConnection& sql, std::span<const std::string_view> scripts);

// "" if it was never set.
std::string read_setting(SqlConnection& sql, const std::string& name);
void write_setting(SqlConnection& sql, const std::string& name, const std::string& value);

}  // namespace varve
