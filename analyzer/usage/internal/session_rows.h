#pragma once
// Single sessions as the database keeps them while they are young: a row of `session`, and rows of further tables,
// which only ever become more.
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/sql/connection.h"

namespace varve::usage {

// Bits of session_module.flags, session_file.flags and session_path.flags.
inline constexpr std::int64_t kUsedDirect = 1, kUsedTransitive = 2, kUsedStatic = 4, kUsedImageCopy = 8,
                              kUsedSessionCopy = 16;
inline constexpr std::int64_t kFileOpened = 1, kFileExecuted = 2;

struct SessionRow {
  std::int64_t id = 0;   // 0 = not in the database yet
  Bytes key;             // 16 bytes
  std::int64_t day = 0;  // the earliest of its processes
  std::int64_t image_id = 0;
  std::string image_rank;  // of the process that told the image: the smallest decides
  bool launched = false, heard = false, gpu_present = false, gpu_used = false;
  bool surplus = false;  // what it used counts, it itself does not; said once, when it is new
};

// `id` is 0 in the result if there is no such session.
SessionRow load_session(SqlConnection& sql, const Bytes& key);
// Gives it a number if it has none. It lived as long as the longest of its processes, and was idle while all its
// kernels were.
void store_session(SqlConnection& sql, SessionRow& session);

enum class SessionTable : std::uint8_t { kUsers, kModule, kCopy, kFailed, kReinstall, kFile, kPath, kGpuModel };

struct SessionTableShape {
  std::string_view name;
  std::string_view keys;  // the columns beside session_id
  bool has_flags;
  std::size_t most;  // rows that one session may have; its files may be as many as it likes
};
// By SessionTable. A large session has some 5,000 modules.
inline constexpr std::array<SessionTableShape, 8> kSessionTables{{
    {"session_users", "month, hash", false, 5'000},
    {"session_module", "module_id, by_id, named_id", true, 50'000},
    {"session_copy", "distribution_id, version", false, 5'000},
    {"session_failed", "failed_id", false, 5'000},
    {"session_reinstall", "reinstall_id, tool", false, 5'000},
    {"session_file", "distribution_id", true, 50'000},
    {"session_path", "path_id", true, 50'000},
    {"session_gpu_model", "model_id", false, 5'000},
}};

// What is to be added to one session.
class SessionRows {
 public:
  void add(SessionTable table, std::vector<SqlValue> key, std::int64_t flags = 0) {
    rows_[std::size_t(table)][std::move(key)] |= flags;
  }
  // Returns how many rows were too many for one session and are left out. `newly_failed` gets the names on which the
  // session had not failed before.
  std::uint64_t store(SqlConnection& sql, std::int64_t session_id,
                      const std::function<void(std::int64_t failed_id)>& newly_failed = {});

 private:
  using Rows = std::map<std::vector<SqlValue>, std::int64_t>;  // key -> flags
  static std::uint64_t leave_out(SqlConnection& sql, std::int64_t session_id, const SessionTableShape& table,
                                 Rows& rows);

  std::array<Rows, kSessionTables.size()> rows_;
};

}  // namespace varve::usage
