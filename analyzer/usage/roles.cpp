#include "analyzer/usage/roles.h"

#include <algorithm>

#include <fmt/format.h>

#include "analyzer/usage/internal/schema.h"
#include "core/base/errors.h"

namespace varve::usage {
namespace {

// What every role of these may do. Names are those of the schema and database of the session.
constexpr const char* kGroups = R"(DO $roles$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'varve_usage_node') THEN
    CREATE ROLE varve_usage_node NOLOGIN;
  END IF;
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'varve_usage_reader') THEN
    CREATE ROLE varve_usage_reader NOLOGIN;
  END IF;
  EXECUTE format('REVOKE CREATE, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
  EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO varve_usage_node, varve_usage_reader', current_schema());
  EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM varve_usage_node', current_schema());
  EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO varve_usage_reader', current_schema());
END $roles$;
GRANT INSERT (session_key, process_key, start, first_byte, content, before, after, owner) ON intake TO varve_usage_node;
GRANT SELECT ON own_spool TO varve_usage_node;
-- Reports need no user and no spool.
REVOKE ALL ON session_users, spool_file, intake, own_spool, node, node_day FROM varve_usage_reader;
-- With the key, names that are hidden could be guessed.
ALTER TABLE setting ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS readers ON setting;
CREATE POLICY readers ON setting FOR SELECT TO varve_usage_reader USING (name <> 'failed_name_key');
DO $roles$
BEGIN
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = CURRENT_USER) THEN
    REVOKE EXECUTE ON FUNCTION lo_creat(INT), lo_create(OID), lo_from_bytea(OID, BYTEA) FROM PUBLIC;
  END IF;
END $roles$;
)";

// {0}: the name, {1}: its group, {2}: further settings.
constexpr const char* kLogin = R"(DO $role$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{0}') THEN
    CREATE ROLE "{0}" LOGIN CONNECTION LIMIT 4;
  ELSIF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{0}' AND
      (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls OR rolname = CURRENT_USER)) THEN
    RAISE EXCEPTION 'role {0} may do more than log in';
  END IF;
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = CURRENT_USER) THEN
    ALTER ROLE "{0}" SET temp_file_limit = '64MB';
  END IF;
END $role$;
GRANT {1} TO "{0}";
)";

void check_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (name.empty() || name.size() > 63 || !std::all_of(name.begin(), name.end(), fits) || name.starts_with("pg_"))
    fail<UsageError>("'{:.70}': not a role's name; letters, digits, '_' and '-' make one, 63 at most", name);
}

}  // namespace

std::string role_statements(const RoleNames& names) {
  std::string text = kGroups;
  for (const auto& [list, group] :
       {std::pair(&names.nodes, "varve_usage_node"), {&names.readers, "varve_usage_reader"}})
    for (const auto& name : *list) {
      check_name(name);
      text += fmt::format(kLogin, name, group);
    }
  return text;
}

bool make_roles(const std::string& where, const RoleNames& names) {
  const auto statements = role_statements(names);
  const auto sql = open_sql(where, usage_kind());
  if (!sql->is_server()) fail<UsageError>("{}: a file has no roles; name a server, postgresql://...", where);
  migrate(*sql);
  bool superuser = false;
  {
    Transaction transaction(*sql, Transaction::Kind::kWrite);
    sql->run_script(statements);
    sql->query("SELECT rolsuper::INT FROM pg_roles WHERE rolname = CURRENT_USER", {},
               [&](const SqlRow& row) { superuser = row.number(0) != 0; });
    transaction.commit();
  }
  return superuser;
}

}  // namespace varve::usage
