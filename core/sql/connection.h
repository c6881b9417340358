#pragma once
// One SQL connection, SQLite or PostgreSQL, for one set of statements. What differs between the two is hidden here: how
// parameters travel, how a transaction of the only writer begins, the words of the schema, and which failures may pass.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/bytes.h"

namespace varve {

// What a database is for: the same in all programs that open it, and different for every kind, so that several may live
// in one PostgreSQL schema.
struct SqlDatabaseKind {
  std::string name;              // "usage database": begins every message
  std::string setting_table;     // where schema.h keeps the version; the first table that is made
  std::int64_t writer_lock = 0;  // PostgreSQL's advisory lock that all writers of the kind take
  // Some who may log in are not trusted: they could take an advisory lock and keep it. Writers lock a row of the
  // settings instead, as soon as there are any.
  bool has_strangers = false;
};

// No statement of ours needs NULL: absence is 0 or "". Doubles are finite.
using SqlValue = std::variant<std::int64_t, double, std::string, Bytes>;

// One row of a result; valid during the callback.
class SqlRow {
 public:
  virtual ~SqlRow() = default;
  virtual std::int64_t number(int column) const = 0;  // NULL (a sum over nothing) is 0
  virtual double real(int column) const = 0;
  virtual std::string text(int column) const = 0;
  virtual Bytes blob(int column) const = 0;
};

// Not shared between threads. All functions throw TemporaryError where trying again may help (full, locked, server
// away), CorruptData where the database is damaged or none of ours, Error otherwise.
class SqlConnection {
 public:
  explicit SqlConnection(SqlDatabaseKind kind) : kind_(std::move(kind)) {}
  virtual ~SqlConnection() = default;
  SqlConnection(const SqlConnection&) = delete;
  SqlConnection& operator=(const SqlConnection&) = delete;

  const SqlDatabaseKind& kind() const { return kind_; }

  // Statements without parameters, several at once.
  virtual void run_script(const std::string& sql) = 0;
  // Parameters are $1, $2, ... in `sql`. The statement is prepared once and kept. Returns the rows that it changed.
  virtual std::uint64_t run(const std::string& sql, std::span<const SqlValue> values,
                            const std::function<void(const SqlRow&)>& each) = 0;

  // Between begin_write() and commit() this connection is the only writer of the database. begin_read() gives one
  // unchanging view.
  virtual void begin_write() = 0;
  virtual void begin_read() = 0;
  virtual void commit() = 0;
  virtual void rollback() noexcept = 0;
  virtual bool in_transaction() const = 0;
  // Everything committed so far survives a power cut. The tables are there (schema.h).
  virtual void flush() = 0;

  // Replaces {number}, {real}, {key}, {blob}, {table_end} and {keyed_table_end} of a schema; of a statement {now}
  // (seconds since 1970, of the database) and {skip_locked}, behind a SELECT of rows that others may be changing.
  // Lines that begin with {server} or {file} are for PostgreSQL or SQLite alone.
  virtual std::string schema_words(std::string_view schema) const = 0;
  virtual std::size_t max_parameters() const = 0;
  // "": any table at all.
  virtual bool has_table(const std::string& name) = 0;
  // A server, PostgreSQL, with users, rights and partitions; else a file.
  virtual bool is_server() const = 0;

  std::uint64_t run(const std::string& sql, std::initializer_list<SqlValue> values = {}) {
    return run(sql, std::span(values.begin(), values.size()), {});
  }
  void query(const std::string& sql, std::initializer_list<SqlValue> values,
             const std::function<void(const SqlRow&)>& each) {
    run(sql, std::span(values.begin(), values.size()), each);
  }

 private:
  SqlDatabaseKind kind_;
};

struct SqliteOptions {
  bool synced = false;     // what was committed survives a power cut; else flush() makes it so
  int cache_kib = 65'536;  // of pages, at most
};
// A file, made with mode 0600 if it is not there.
std::unique_ptr<SqlConnection> open_sqlite(const std::string& path, const SqlDatabaseKind& kind,
                                           const SqliteOptions& options = {});
std::unique_ptr<SqlConnection> open_postgres(const std::string& url, const SqlDatabaseKind& kind);
// "postgresql://..." and "postgres://..." are a server; all else is a file, with or without "sqlite:" before it.
std::unique_ptr<SqlConnection> open_sql(const std::string& where, const SqlDatabaseKind& kind);

// Ends in commit() or, on any way out before that, in a rollback.
class Transaction {
 public:
  enum class Kind : std::uint8_t { kRead, kWrite };
  Transaction(SqlConnection& sql, Kind kind) : sql_(sql) {
    kind == Kind::kRead ? sql_.begin_read() : sql_.begin_write();
  }
  ~Transaction() {
    if (sql_.in_transaction()) sql_.rollback();
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit() { sql_.commit(); }

 private:
  SqlConnection& sql_;
};

// `head` ("INSERT INTO t(a, b) VALUES"), then as many rows of `columns` parameters as there are, then `tail` ("ON
// CONFLICT ..."); in as few statements as the database allows. `values` holds the rows one after the other.
void run_rows(SqlConnection& sql, std::string_view head, std::size_t columns, std::string_view tail,
              std::span<const SqlValue> values, const std::function<void(const SqlRow&)>& each = {});

// Runs `head` (... IN (), `tail`) for all values, in pieces. $1.. of `head` may not be used otherwise.
void query_in(SqlConnection& sql, std::string_view head, std::span<const SqlValue> values, std::string_view tail,
              const std::function<void(const SqlRow&)>& each);

inline Bytes blob_of(ByteView bytes) { return to_bytes(bytes); }

}  // namespace varve
