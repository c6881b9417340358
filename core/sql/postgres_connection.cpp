#include <charconv>
#include <cstdlib>
#include <unordered_map>

#include <pqxx/pqxx>

#include "core/base/errors.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/sql/connection.h"

namespace varve {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

std::string bytea_text(const Bytes& blob) {
  std::string text = "\\x";
  text.reserve(2 + blob.size() * 2);
  for (const auto byte : blob) {
    text += kHexDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kHexDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

class PostgresRow final : public SqlRow {
 public:
  explicit PostgresRow(const pqxx::row& row) : row_(row) {}
  std::int64_t number(int column) const override {
    const auto field = row_[pqxx::row::size_type(column)];
    std::int64_t value = 0;
    std::from_chars(field.c_str(), field.c_str() + field.size(),
                    value);  // a sum of bigints is a numeric, written without a fraction
    return value;
  }
  double real(int column) const override {
    const auto field = row_[pqxx::row::size_type(column)];
    double value = 0;
    std::from_chars(field.c_str(), field.c_str() + field.size(), value);
    return value;
  }
  std::string text(int column) const override {
    const auto field = row_[pqxx::row::size_type(column)];
    return {field.c_str(), field.size()};
  }
  Bytes blob(int column) const override {
    const auto field = row_[pqxx::row::size_type(column)];
    const std::string_view text(field.c_str(), field.size());
    if (!text.starts_with("\\x")) return {};
    Bytes blob(text.size() / 2 - 1);
    for (std::size_t i = 0; i < blob.size(); ++i)
      blob[i] = std::byte(hex_digit(text[2 + 2 * i]) << 4 | hex_digit(text[3 + 2 * i]));
    return blob;
  }

 private:
  const pqxx::row& row_;
};

class PostgresConnection final : public SqlConnection {
 public:
  PostgresConnection(const std::string& url, const SqlDatabaseKind& kind) : SqlConnection(kind) {
    guarded([&] {
      connection_ = std::make_unique<pqxx::connection>(url);
      connection_->set_client_encoding("UTF8");
      // Our schema is made with IF NOT EXISTS; that it is there already is no news.
      pqxx::nontransaction(*connection_).exec("SET client_min_messages = warning");
    });
  }

  void run_script(const std::string& sql) override {
    guarded([&] {
      if (transaction_)
        transaction_->exec(sql);
      else
        pqxx::nontransaction(*connection_).exec(sql);
    });
  }

  std::uint64_t run(const std::string& sql, std::span<const SqlValue> values,
                    const std::function<void(const SqlRow&)>& each) override {
    pqxx::result result;
    guarded([&] {
      const auto& name = prepared(sql);
      parameters_.clear();
      for (const auto& value : values) parameters_.push_back(text_of(value));
      const auto parameters = pqxx::prepare::make_dynamic_params(parameters_);
      if (transaction_) {
        result = transaction_->exec_prepared(name, parameters);
      } else {
        pqxx::nontransaction work(*connection_);
        result = work.exec_prepared(name, parameters);
      }
    });
    if (each)
      for (const auto& row : result) each(PostgresRow(row));
    return std::uint64_t(result.affected_rows());
  }

  void begin_write() override {
    guarded([&] {
      transaction_ = std::make_unique<pqxx::transaction<pqxx::read_committed>>(*connection_);
      // As in SQLite there is one writer at a time. Writers that read, change and write would wait for each other
      // anyway, and in this order they cannot wait in a circle. A row can only be locked by those who may change it.
      lock_row_ = lock_row_ || (kind().has_strangers && has_table(kind().setting_table));
      transaction_->exec(lock_row_
                             ? fmt::format("SELECT 1 FROM {} WHERE name = 'schema' FOR UPDATE", kind().setting_table)
                             : fmt::format("SELECT pg_advisory_xact_lock({})", kind().writer_lock));
      transaction_->exec("SET LOCAL synchronous_commit = off");  // flush() syncs
    });
  }
  void begin_read() override {
    guarded([&] {
      transaction_ = std::make_unique<pqxx::transaction<pqxx::repeatable_read, pqxx::read_only>>(*connection_);
    });
  }
  void commit() override {
    guarded([&] {
      transaction_->commit();
      transaction_.reset();
    });
  }
  void rollback() noexcept override {
    try {
      transaction_->abort();
    } catch (const std::exception&) {  // the server ends it when the connection is gone
    }
    transaction_.reset();
  }
  bool in_transaction() const override { return transaction_ != nullptr; }
  void flush() override {
    // The write-ahead log is one sequence: a commit that is synced syncs all before it.
    begin_write();
    guarded([&] {
      transaction_->exec("SET LOCAL synchronous_commit = on");
      transaction_->exec(fmt::format("UPDATE {} SET value = value WHERE name = 'schema'", kind().setting_table));
    });
    commit();
  }

  std::string schema_words(std::string_view schema) const override {
    std::string text(schema);
    const auto replace = [&](std::string_view word, std::string_view with) {
      for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + with.size()))
        text.replace(at, word.size(), with);
    };
    replace("{number}", "BIGINT");
    replace("{real}", "DOUBLE PRECISION");
    replace("{key}", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY");
    replace("{blob}", "BYTEA");
    replace("{table_end}", "");
    replace("{keyed_table_end}", "");
    replace("{file}", "--");
    replace("{server}", "");
    replace("{now}", "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS BIGINT)");
    replace("{skip_locked}", "FOR UPDATE SKIP LOCKED");
    return text;
  }
  std::size_t max_parameters() const override { return 65'535; }
  bool has_table(const std::string& name) override {
    bool found = false;
    // Tables of others may live beside ours in the schema of the search path, as long as the names differ.
    if (name.empty()) return false;
    query(
        "SELECT count(*) FROM pg_catalog.pg_class WHERE relkind = 'r' AND relname = $1 "
        "AND pg_catalog.pg_table_is_visible(oid)",
        {name}, [&](const SqlRow& row) { found = row.number(0) != 0; });
    return found;
  }
  bool is_server() const override { return true; }

 private:
  static std::string text_of(const SqlValue& value) {
    if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
    if (const auto* real = std::get_if<double>(&value))
      return fmt::format("{}", *real);  // the shortest text that is this number again
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    return bytea_text(std::get<Bytes>(value));
  }

  const std::string& prepared(const std::string& sql) {
    const auto found = names_.find(sql);
    if (found != names_.end()) return found->second;
    auto name = fmt::format("varve{}", names_.size());
    connection_->prepare(name, sql);
    return names_.emplace(sql, std::move(name)).first->second;
  }

  template <typename Work>
  void guarded(Work&& work) const {
    try {
      work();
    } catch (const pqxx::broken_connection& error) {
      fail<TemporaryError>("{}: {}", kind().name, single_line(trimmed(error.what())));
    } catch (const pqxx::transaction_rollback& error) {
      fail<TemporaryError>("{}: {}", kind().name, single_line(trimmed(error.what())));
    } catch (const pqxx::in_doubt_error& error) {
      fail<TemporaryError>("{}: {}", kind().name, single_line(trimmed(error.what())));
    } catch (const pqxx::sql_error& error) {
      const auto state = error.sqlstate().substr(0, 2);
      // 53: out of disk, memory, connections; 55: locked; 57: server stops; 40, 08: conflict, connection.
      const bool may_pass = state == "53" || state == "55" || state == "57" || state == "40" || state == "08";
      if (may_pass) fail<TemporaryError>("{}: {}", kind().name, single_line(trimmed(error.what())));
      if (error.sqlstate() == "42501")
        fail<Error>("{}: {}; connect as a role that may do this, its owner for one", kind().name,
                    single_line(trimmed(error.what())));
      fail<Error>("{}: {}", kind().name, single_line(trimmed(error.what())));
    } catch (const pqxx::failure& error) {
      fail<Error>("{}: {}", kind().name, single_line(trimmed(error.what())));
    }
  }

  std::unique_ptr<pqxx::connection> connection_;
  std::unique_ptr<pqxx::dbtransaction> transaction_;
  std::unordered_map<std::string, std::string> names_;
  std::vector<std::string> parameters_;
  bool lock_row_ = false;
};

}  // namespace

std::unique_ptr<SqlConnection> open_postgres(const std::string& url, const SqlDatabaseKind& kind) {
  return std::make_unique<PostgresConnection>(url, kind);
}

}  // namespace varve
