#pragma once
#include <string>

#include "analyzer/usage/database.h"
#include "core/sql/connection.h"

namespace varve::usage {

// The caller holds the read transaction.
Explanation explain_name(SqlConnection& sql, const std::string& name, const SnapshotQuery& query);

}  // namespace varve::usage
