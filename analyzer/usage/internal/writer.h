#pragma once
// Everything a writer of the database holds while it writes: the names it knows, the answers of inventories, and the
// sessions that are to be counted at the end of its transaction.
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analyzer/usage/internal/failed_names.h"
#include "analyzer/usage/internal/keyed_hash.h"
#include "analyzer/usage/internal/names.h"
#include "analyzer/usage/internal/resolver.h"
#include "core/sql/connection.h"

namespace varve::usage {

// One per connection. Between begin() and commit() this connection is the only writer; what it remembers stays valid
// between transactions for as long as nobody else wrote, which begin() finds out.
class Writer {
 public:
  explicit Writer(SqlConnection& sql);

  void begin();
  // Counts the sessions, and commits.
  void commit();
  // After a failure: nothing that was remembered can be trusted.
  void rollback() noexcept;
  void names_were_removed() { forget(); }

  SqlConnection& sql() { return sql_; }
  NameTable& modules() { return modules_; }
  NameTable& distributions() { return distributions_; }
  NameTable& gpu_models() { return gpu_models_; }
  NameTable& pending_paths() { return pending_paths_; }
  KeyedHash& keyed_hash() { return keyed_hash_; }
  FailedNames& failed_names() { return failed_names_; }
  std::int64_t image_id(const std::string& digest);  // "" = unknown; makes it if need be
  const ImageResolver& resolver(std::int64_t image_id);
  void forget_resolver(std::int64_t image_id) { resolvers_.erase(image_id); }
  std::int64_t reinstall_id(std::int64_t distribution_id, const std::string& from, const std::string& to,
                            const std::string& why);

  // A session of this day that no daily table counts yet: commit() counts it.
  void count(std::int64_t session_id, std::int64_t day);
  // Called before these sessions, or what is known of their image, change: they are taken out of the daily tables, and
  // commit() counts what they are by then.
  void recount(const std::vector<std::int64_t>& session_ids);
  // An older schema did not keep whose a session's modules are (`module_owner`), nor how many users a sketch has.
  void complete_older_schema();

 private:
  void forget();
  void forget_if_too_much();
  void find_owners(std::span<const SqlValue> session_ids);
  void complete_files_only();

  SqlConnection& sql_;
  std::string token_;  // tells this connection from all others
  NameTable modules_, distributions_, gpu_models_, pending_paths_;
  KeyedHash keyed_hash_;
  FailedNames failed_names_;
  std::map<std::string, std::int64_t> images_;
  std::map<std::int64_t, ImageResolver> resolvers_;
  std::set<std::int64_t> uncounted_;  // sessions
  std::set<std::int64_t> lessened_;   // days
  std::int32_t partitioned_ = -1;     // the last month that is known to have partitions
};

// Begins in its constructor; without commit() everything is undone.
class WriteTransaction {
 public:
  explicit WriteTransaction(Writer& writer) : writer_(writer) { writer_.begin(); }
  ~WriteTransaction() {
    if (!done_) writer_.rollback();
  }
  WriteTransaction(const WriteTransaction&) = delete;
  WriteTransaction& operator=(const WriteTransaction&) = delete;
  void commit() {
    writer_.commit();
    done_ = true;
  }

 private:
  Writer& writer_;
  bool done_ = false;
};

}  // namespace varve::usage
