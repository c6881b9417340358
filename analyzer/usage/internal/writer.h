#pragma once
// Everything a writer of the database holds while it writes: the names it knows, the answers of inventories, and the
// daily sums and user sketches that it will add to at the end of its transaction.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "analyzer/usage/internal/aggregates.h"
#include "analyzer/usage/internal/failed_names.h"
#include "analyzer/usage/internal/names.h"
#include "analyzer/usage/internal/resolver.h"
#include "analyzer/usage/internal/session_state.h"
#include "analyzer/usage/internal/user_sketch.h"
#include "core/sql/connection.h"

namespace varve::usage {

// What user_sketch.subject_id means.
enum class SketchKind : std::uint8_t { kImage, kDistribution, kFailed, kReinstall };

struct SketchKey {
  std::int64_t month = 0;
  std::int64_t image_id = 0;
  SketchKind kind = SketchKind::kImage;
  std::int64_t subject_id = 0;  // 0 for kImage
  auto operator<=>(const SketchKey&) const = default;
};

// One per connection. Between begin() and commit() this connection is the only writer; what it remembers stays valid
// between transactions for as long as nobody else wrote, which begin() finds out.
class Writer {
 public:
  explicit Writer(SqlConnection& sql);

  void begin();
  // Writes the sums and sketches, and commits.
  void commit();
  // After a failure: nothing that was remembered can be trusted.
  void rollback() noexcept;
  void names_were_removed() { forget(); }

  SqlConnection& sql() { return sql_; }
  NameTable& modules() { return modules_; }
  NameTable& distributions() { return distributions_; }
  NameTable& gpu_models() { return gpu_models_; }
  NameTable& pending_paths() { return pending_paths_; }
  FailedNames& failed_names() { return failed_names_; }
  std::int64_t image_id(const std::string& digest);  // "" = unknown; makes it if need be
  const ImageResolver& resolver(std::int64_t image_id);
  void forget_resolver(std::int64_t image_id) { resolvers_.erase(image_id); }
  std::int64_t reinstall_id(std::int64_t distribution_id, const std::string& from, const std::string& to,
                            const std::string& why);

  // Writes the changed session and notes what that means for the daily tables and the sketches. Both contributions are
  // given by the caller, because an inventory may have changed between them.
  void change_session(const SessionState& before, const Contribution& old_part, SessionState& after,
                      const Contribution& new_part);

 private:
  void forget();
  void forget_if_too_much();
  void add_users(const SessionState& before, const Contribution& old_part, const SessionState& after,
                 const Contribution& new_part);
  void add_user(const SketchKey& key, std::uint64_t hash);
  void write_sketches();

  struct CachedSketch {
    UserSketch sketch;
    bool changed = false;
  };

  SqlConnection& sql_;
  std::string token_;  // tells this connection from all others
  NameTable modules_, distributions_, gpu_models_, pending_paths_;
  FailedNames failed_names_;
  std::map<std::string, std::int64_t> images_;
  std::map<std::int64_t, ImageResolver> resolvers_;
  std::map<std::tuple<std::int64_t, std::string, std::string, std::string>, std::int64_t> reinstalls_;
  Contribution difference_;
  std::map<SketchKey, CachedSketch> sketches_;
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
