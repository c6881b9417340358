#pragma once
// One session as the database keeps it while its raw rows live, and what it adds to the daily tables.
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "analyzer/usage/internal/aggregates.h"
#include "analyzer/usage/internal/names.h"
#include "analyzer/usage/internal/resolver.h"
#include "core/base/bytes.h"
#include "core/sql/connection.h"

namespace varve::usage {

// Bits of session_module.flags, session_file.flags and session_path.flags.
inline constexpr std::int64_t kUsedDirect = 1, kUsedTransitive = 2, kUsedStatic = 4, kUsedImageCopy = 8,
                              kUsedSessionCopy = 16;
inline constexpr std::int64_t kFileOpened = 1, kFileExecuted = 2;

// A value. Everything in it only ever grows, whatever the order in which a session's files are read, except `day` (the
// earliest day of its processes) and the image, which the first process decides.
struct SessionState {
  struct Module {
    std::int64_t module_id = 0;
    std::int64_t by_id = 0;     // the module that imported it; 0 = none
    std::int64_t named_id = 0;  // the distribution that the record itself names; 0 = by the image's inventory
    auto operator<=>(const Module&) const = default;
  };

  std::int64_t id = 0;  // 0 = not in the database yet
  Bytes key;            // 16 bytes
  std::int64_t day = 0;
  std::int64_t image_id = 0;
  std::string image_rank;  // of the process that told the image: the smallest decides
  bool launched = false, heard = false, gpu_present = false, gpu_used = false;
  std::int64_t lifetime_seconds = 0;
  std::int64_t idle_seconds = 0;
  std::set<std::pair<std::int64_t, Bytes>> users;         // month, hash
  std::map<Module, std::int64_t> modules;                 // flags
  std::set<std::pair<std::int64_t, std::string>> copies;  // distribution, version
  std::set<std::int64_t> failed;
  std::set<std::pair<std::int64_t, std::string>> reinstalls;  // reinstall, tool
  std::map<std::int64_t, std::int64_t> files;                 // distribution -> flags
  std::map<std::int64_t, std::int64_t> paths;                 // path that waits for an inventory -> flags
  std::set<std::int64_t> gpu_models;
};

// `id` is 0 in the result if there is no such session.
SessionState load_session(SqlConnection& sql, const Bytes& session_key);
SessionState load_session(SqlConnection& sql, std::int64_t session_id);

// Writes what `after` has and `before` has not; gives it a number if it has none. Paths that are gone from `after` are
// removed.
void store_session(SqlConnection& sql, const SessionState& before, SessionState& after);

// What the session adds to the daily tables. Interns the short names of modules.
Contribution contribution_of(const SessionState& session, const ImageResolver& image, NameTable& modules);

}  // namespace varve::usage
