#pragma once
// Which distributions are used together: by one notebook, by one session, and by how many of a set. What plans need
// beyond a Snapshot.
#include <functional>
#include <string>
#include <vector>

#include "analyzer/usage/database.h"
#include "core/sql/connection.h"

namespace varve::usage {

// As the functions of Database that they serve; the caller holds the read transaction.
void read_notebook_imports(SqlConnection& sql, const Digest& image, const std::function<void(NotebookImports&&)>& each);
SessionSample read_sessions(SqlConnection& sql, const SnapshotQuery& query, std::uint64_t at_most,
                            const std::function<void(SessionUse&&)>& each);
SetUse read_set_use(SqlConnection& sql, const SnapshotQuery& query, const std::vector<std::string>& distributions);

}  // namespace varve::usage
