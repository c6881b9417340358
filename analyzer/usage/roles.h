#pragma once
// Who may do what with a usage database on a server. Nodes only add what they send; readers only read.
#include <string>
#include <vector>

namespace varve::usage {

struct RoleNames {
  std::vector<std::string> nodes, readers;  // login roles; of ASCII letters, digits, "_" and "-", 63 at most
};

// The statements that make these roles where they are absent and give them their rights; harmless to repeat. Throws
// UsageError for a name that is none.
std::string role_statements(const RoleNames& names);

// Makes the tables and runs these statements. Returns whether they were run as a superuser: only that one can also keep
// nodes from storing large objects, and bound their temporary files. Throws UsageError where `where` is a file, or
// where one of the names is a role that may do more than log in.
bool make_roles(const std::string& where, const RoleNames& names);

}  // namespace varve::usage
