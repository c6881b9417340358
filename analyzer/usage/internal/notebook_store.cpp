#include "analyzer/usage/internal/notebook_store.h"

#include "analyzer/usage/internal/clean_text.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

std::int64_t store_notebook(SqlConnection& sql, const notebooks::ScannedFile& file) {
  std::int64_t id = 0;
  sql.query(
      "INSERT INTO notebook (path, format, language, code_cells, code_digest, day) VALUES ($1, $2, $3, $4, $5, $6) "
      "ON CONFLICT (path) DO UPDATE SET "
      "format = excluded.format, language = excluded.language, code_cells = excluded.code_cells, code_digest = "
      "excluded.code_digest, "
      "day = excluded.day RETURNING id",
      {clean_text(file.path), clean_text(file.format), clean_text(file.language), std::int64_t(file.code_cells),
       file.code_digest.to_string(), std::int64_t(today_utc())},
      [&](const SqlRow& row) { id = row.number(0); });
  for (const auto* table : {"notebook_import", "notebook_install", "notebook_hint"})
    sql.run(fmt::format("DELETE FROM {} WHERE notebook_id = $1", table), {id});
  return id;
}

void store_findings(SqlConnection& sql, std::int64_t id, const notebooks::ScannedFile& file) {
  std::vector<SqlValue> rows;
  std::int64_t number = 0;
  for (const auto& import : file.imports) {
    if (import.unknown_name) continue;
    rows.insert(rows.end(), {id, number++, clean_text(import.name), clean_text(import.module),
                             std::string(notebooks::import_kind_name(import.kind)), std::int64_t(import.local),
                             std::int64_t(import.cell), std::int64_t(import.line)});
  }
  for (const auto& backend : file.backends)
    rows.insert(rows.end(), {id, number++, clean_text(backend.module), clean_text(backend.module), std::string("call"),
                             std::int64_t(0), std::int64_t(backend.cell), std::int64_t(backend.line)});
  run_rows(sql, "INSERT INTO notebook_import (notebook_id, number, name, module, kind, local, cell, line) VALUES", 8,
           "", rows);
  rows.clear();
  number = 0;
  for (const auto& install : file.installs) {
    if (install.remove) continue;  // wants nothing
    rows.insert(rows.end(), {id, number++, clean_text(install.tool), clean_text(install.package),
                             clean_text(install.argument), std::int64_t(install.cell), std::int64_t(install.line)});
  }
  run_rows(sql, "INSERT INTO notebook_install (notebook_id, number, tool, package, argument, cell, line) VALUES", 7, "",
           rows);
  rows.clear();
  number = 0;
  for (const auto& hint : file.hints)
    rows.insert(rows.end(), {id, number++, clean_text(hint.kind), clean_text(hint.text), std::int64_t(hint.cell),
                             std::int64_t(hint.line)});
  run_rows(sql, "INSERT INTO notebook_hint (notebook_id, number, kind, text, cell, line) VALUES", 6, "", rows);
}

}  // namespace

void store_scan(Writer& writer, const notebooks::ScanResult& scan) {
  WriteTransaction transaction(writer);
  for (const auto& file : scan.files) store_findings(writer.sql(), store_notebook(writer.sql(), file), file);
  transaction.commit();
}

}  // namespace varve::usage
