#include "core/sql/schema.h"

#include <charconv>

#include "core/base/errors.h"

namespace varve {
namespace {

std::size_t version_of(SqlConnection& sql) {
  const auto text = read_setting(sql, "schema");
  std::size_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1)
    fail<CorruptData>("{}: its schema version is not a number", sql.kind().name);
  return version;
}

void check_not_newer(const SqlConnection& sql, std::size_t version, std::size_t newest) {
  if (version > newest)
    fail<Unsupported>("{}: its schema is version {}, this program knows up to {}; use a newer program", sql.kind().name,
                      version, newest);
}

}  // namespace

std::string read_setting(SqlConnection& sql, const std::string& name) {
  std::string value;
  sql.query(fmt::format("SELECT value FROM {} WHERE name = $1", sql.kind().setting_table), {name},
            [&](const SqlRow& row) { value = row.text(0); });
  return value;
}

void write_setting(SqlConnection& sql, const std::string& name, const std::string& value) {
  sql.run(fmt::format(
              "INSERT INTO {} (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
              sql.kind().setting_table),
          {name, value});
}

void migrate_schema(SqlConnection& sql, std::span<const std::string_view> scripts) {
  const auto& settings = sql.kind().setting_table;
  if (sql.has_table(settings)) {
    const auto version = version_of(sql);
    check_not_newer(sql, version, scripts.size());
    if (version == scripts.size()) return;
  }
  Transaction transaction(sql, Transaction::Kind::kWrite);
  // Another program may have done it while we waited.
  std::size_t version = 0;
  if (sql.has_table(settings))
    version = version_of(sql);
  else if (sql.has_table(""))
    fail<CorruptData>("{0}: it holds tables that are not of a {0}", sql.kind().name);
  else
    sql.run_script(sql.schema_words("CREATE TABLE " + settings +
                                    " (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) {table_end}"));
  check_not_newer(sql, version, scripts.size());
  for (; version < scripts.size(); ++version) sql.run_script(sql.schema_words(scripts[version]));
  write_setting(sql, "schema", std::to_string(version));
  transaction.commit();
}

}  // namespace varve
