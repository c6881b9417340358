#include <fcntl.h>

#include <cctype>
#include <chrono>
#include <optional>
#include <thread>
#include <unordered_map>

#include <SQLiteCpp/SQLiteCpp.h>

#include "core/base/errors.h"
#include "core/base/files/unique_fd.h"
#include "core/base/random.h"
#include "core/sql/connection.h"

namespace varve {
namespace {

constexpr int kBusyTimeoutMs = 60'000;

// Primary result codes: sqlite.org/rescode.html.
enum ResultCode : int {
  kBusy = 5,
  kLocked = 6,
  kOutOfMemory = 7,
  kIoError = 10,
  kCorrupt = 11,
  kFull = 13,
  kProtocol = 15,
  kNotADatabase = 26
};

// "$1" of our statements is a name to SQLite and would be numbered by its first use; "?1" is the number itself.
std::string numbered(const std::string& sql) {
  std::string text = sql;
  for (std::size_t i = 0; i + 1 < text.size(); ++i)
    if (text[i] == '$' && std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0) text[i] = '?';
  return text;
}

class SqliteRow final : public SqlRow {
 public:
  explicit SqliteRow(SQLite::Statement& statement) : statement_(statement) {}
  std::int64_t number(int column) const override { return statement_.getColumn(column).getInt64(); }
  std::string text(int column) const override { return statement_.getColumn(column).getString(); }
  double real(int column) const override { return statement_.getColumn(column).getDouble(); }
  Bytes blob(int column) const override {
    const auto value = statement_.getColumn(column);
    const auto* data = static_cast<const std::byte*>(value.getBlob());
    return data == nullptr ? Bytes() : Bytes(data, data + value.getBytes());
  }

 private:
  SQLite::Statement& statement_;
};

class SqliteConnection final : public SqlConnection {
 public:
  SqliteConnection(const std::string& path, const SqlDatabaseKind& kind, const SqliteOptions& options)
      : SqlConnection(kind), path_(path) {
    // A new database is its owner's alone; whoever may read it is for the owner to say. Closed before SQLite opens it:
    // a file of this process that is closed ends all locks that the process has on it (fcntl(2)).
    UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)).reset();
    guarded([&] {
      database_.emplace(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, kBusyTimeoutMs);
      // Readers and the one writer do not wait for each other. Unless asked for, a commit is not synced: after a power
      // cut the database is as it was a moment before. Who gives up the source of what was written calls flush() first.
      begin_log();
      database_->exec(options.synced ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
      database_->exec("PRAGMA foreign_keys = ON");
      database_->exec(fmt::format("PRAGMA cache_size = -{}", options.cache_kib));
      database_->exec("PRAGMA temp_store = MEMORY");
    });
  }

  void run_script(const std::string& sql) override {
    guarded([&] { database_->exec(sql); });
  }

  std::uint64_t run(const std::string& sql, std::span<const SqlValue> values,
                    const std::function<void(const SqlRow&)>& each) override {
    std::uint64_t changed = 0;
    guarded([&] {
      auto& statement = prepared(sql);
      const ResetAtExit reset{statement};
      for (std::size_t i = 0; i < values.size(); ++i) bind(statement, int(i) + 1, values[i]);
      const SqliteRow row(statement);
      while (statement.executeStep())
        if (each) each(row);
      changed = std::uint64_t(database_->getChanges());
    });
    return changed;
  }

  void begin_write() override { begin("BEGIN IMMEDIATE"); }
  void begin_read() override { begin("BEGIN"); }
  void commit() override {
    guarded([&] { database_->exec("COMMIT"); });
    in_transaction_ = false;
  }
  void rollback() noexcept override {
    in_transaction_ = false;
    try {
      database_->exec("ROLLBACK");
    } catch (const std::exception&) {  // a full disk has rolled back already; then there is none to end
    }
  }
  bool in_transaction() const override { return in_transaction_; }
  void flush() override {
    query("PRAGMA wal_checkpoint(FULL)", {}, [this](const SqlRow& row) {
      if (row.number(0) != 0)
        fail<TemporaryError>("{} {}: others kept it from being written through to the disk", kind().name, path_);
    });
  }

  std::string schema_words(std::string_view schema) const override {
    std::string text(schema);
    const auto replace = [&](std::string_view word, std::string_view with) {
      for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + with.size()))
        text.replace(at, word.size(), with);
    };
    replace("{number}", "INTEGER");
    replace("{real}", "REAL");
    replace("{key}", "INTEGER PRIMARY KEY");
    replace("{blob}", "BLOB");
    replace("{table_end}", "STRICT");
    replace("{keyed_table_end}", "STRICT, WITHOUT ROWID");
    replace("{file}", "");
    replace("{server}", "--");
    replace("{now}", "CAST(strftime('%s', 'now') AS INTEGER)");
    replace("{skip_locked}", "");  // there is one writer
    return text;
  }
  std::size_t max_parameters() const override { return 32'766; }
  bool has_table(const std::string& name) override {
    bool found = false;
    query("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND (name = $1 OR $1 = '')", {name},
          [&](const SqlRow& row) { found = row.number(0) != 0; });
    return found;
  }
  bool is_server() const override { return false; }

 private:
  struct ResetAtExit {
    SQLite::Statement& statement;
    ~ResetAtExit() { statement.tryReset(); }
  };

  // SQLite does not wait for another that does the same to a new database.
  void begin_log() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kBusyTimeoutMs);
    while (true) {
      try {
        return void(database_->exec("PRAGMA journal_mode = WAL"));
      } catch (const SQLite::Exception& error) {
        if ((error.getErrorCode() & 0xff) != kBusy || std::chrono::steady_clock::now() > until) throw;
      }
      std::this_thread::sleep_for(random_wait(std::chrono::milliseconds(1), std::chrono::milliseconds(10)));
    }
  }

  void begin(const char* how) {
    guarded([&] { database_->exec(how); });
    in_transaction_ = true;
  }

  SQLite::Statement& prepared(const std::string& sql) {
    const auto found = statements_.find(sql);
    if (found != statements_.end()) return found->second;
    return statements_.try_emplace(sql, *database_, numbered(sql)).first->second;
  }

  // The values outlive the step, so nothing is copied.
  static void bind(SQLite::Statement& statement, int at, const SqlValue& value) {
    if (const auto* number = std::get_if<std::int64_t>(&value))
      statement.bind(at, *number);
    else if (const auto* real = std::get_if<double>(&value))
      statement.bind(at, *real);
    else if (const auto* text = std::get_if<std::string>(&value))
      statement.bindNoCopy(at, *text);
    else {
      const auto& blob = std::get<Bytes>(value);
      // A null pointer would bind NULL; an empty blob is a value.
      statement.bindNoCopy(at, blob.empty() ? static_cast<const void*>("") : blob.data(), int(blob.size()));
    }
  }

  template <typename Work>
  void guarded(Work&& work) const {
    try {
      work();
    } catch (const SQLite::Exception& error) {
      switch (error.getErrorCode() & 0xff) {
        case kFull:
        case kBusy:
        case kLocked:
        case kIoError:
        case kOutOfMemory:
        case kProtocol:
          fail<TemporaryError>("{} {}: {}; what was committed before is kept, try again", kind().name, path_,
                               error.what());
        case kCorrupt:
        case kNotADatabase:
          fail<CorruptData>("{} {}: {}", kind().name, path_, error.what());
        default:
          fail<Error>("{} {}: {}", kind().name, path_, error.what());
      }
    }
  }

  std::string path_;
  std::optional<SQLite::Database> database_;
  std::unordered_map<std::string, SQLite::Statement> statements_;  // before the database in destruction
  bool in_transaction_ = false;
};

}  // namespace

std::unique_ptr<SqlConnection> open_sqlite(const std::string& path, const SqlDatabaseKind& kind,
                                           const SqliteOptions& options) {
  return std::make_unique<SqliteConnection>(path, kind, options);
}

}  // namespace varve
