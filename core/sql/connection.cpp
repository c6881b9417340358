#include "core/sql/connection.h"

#include <algorithm>

#include <fmt/format.h>

namespace varve {
namespace {

// Statements are prepared and kept, so only two sizes of each are made: one of many rows, and one row.
constexpr std::size_t kRowsPerStatement = 64;

}  // namespace

std::unique_ptr<SqlConnection> open_sql(const std::string& where, const SqlDatabaseKind& kind) {
  constexpr std::string_view kSqlite = "sqlite:";
  if (where.starts_with("postgresql://") || where.starts_with("postgres://")) return open_postgres(where, kind);
  return open_sqlite(where.starts_with(kSqlite) ? where.substr(kSqlite.size()) : where, kind);
}

void run_rows(SqlConnection& sql, std::string_view head, std::size_t columns, std::string_view tail,
              std::span<const SqlValue> values, const std::function<void(const SqlRow&)>& each) {
  const auto text_for = [&](std::size_t rows) {
    std::string text(head);
    for (std::size_t row = 0, parameter = 1; row < rows; ++row) {
      text += row == 0 ? " (" : ", (";
      for (std::size_t column = 0; column < columns; ++column)
        text += fmt::format("{}${}", column == 0 ? "" : ", ", parameter++);
      text += ')';
    }
    return text + " " + std::string(tail);
  };
  std::size_t at = 0;
  const auto run_in_steps = [&](std::size_t rows) {
    if (values.size() - at < rows * columns) return;
    const auto text = text_for(rows);
    for (; values.size() - at >= rows * columns; at += rows * columns)
      sql.run(text, values.subspan(at, rows * columns), each);
  };
  run_in_steps(std::clamp<std::size_t>(sql.max_parameters() / columns, 1, kRowsPerStatement));
  run_in_steps(8);
  run_in_steps(1);
}

void query_in(SqlConnection& sql, std::string_view head, std::span<const SqlValue> values, std::string_view tail,
              const std::function<void(const SqlRow&)>& each) {
  const auto text_for = [&](std::size_t count) {
    std::string text(head);
    text += " IN (";
    for (std::size_t i = 1; i <= count; ++i) text += fmt::format("{}${}", i == 1 ? "" : ", ", i);
    return text + ") " + std::string(tail);
  };
  for (; !values.empty(); values = values.subspan(std::min(values.size(), kRowsPerStatement))) {
    const auto piece = values.first(std::min(values.size(), kRowsPerStatement));
    std::vector<SqlValue> padded(piece.begin(), piece.end());
    if (padded.size() > 1) padded.resize(kRowsPerStatement, padded.back());  // to name one twice changes nothing
    sql.run(text_for(padded.size()), padded, each);
  }
}

}  // namespace varve
