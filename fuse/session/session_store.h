#pragma once
// The sessions of one root: ROOT/sessions/ID holds session.json, the writable layer (upper, work), and while it runs
// the bundle. A lock file that the session's processes hold tells a running one from one whose processes are gone,
// however they ended. docs/guide/sessions.md.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/files/unique_fd.h"
#include "core/base/process/running_process.h"
#include "fuse/mount/user_ids.h"

namespace varve::fuse {

// What session.json says. A value.
struct SessionRecord {
  std::string id;  // 12 hex digits, random
  std::string name;
  std::string image;  // as the user wrote it, in full
  std::string image_digest;
  std::vector<std::string> command;
  std::string stop_signal;           // as its image has it; "" = SIGTERM
  std::string user;                  // whom the command runs as: a name or number of the image; "" until that is known
  std::int64_t created_seconds = 0;  // Unix time
  std::int64_t started_seconds = 0;  // Unix time, the last time
  bool remove_at_exit = false;
  bool detached = false;           // its output goes to its log
  std::string options = "{}";      // JSON: what it was asked to be, for who starts it again
  std::string runtime;             // "" until one has started the command
  std::optional<int> exit_status;  // absent while it runs, or if it was killed with its supervisor
  std::uint64_t upper_bytes = 0;   // on disk, when the command ended
  std::optional<OwnIds> own_ids;   // of its user namespace; its writable layer belongs to them
};

struct SessionFolder {
  std::filesystem::path dir;

  std::filesystem::path record() const { return dir / "session.json"; }
  std::filesystem::path lock() const { return dir / "lock"; }
  // Who holds the session while it runs: the supervisor, as the machine numbers it. Of a session that does not run,
  // stale.
  std::filesystem::path process() const { return dir / "process"; }
  // What detached commands said: the end of it, and what was before.
  std::filesystem::path output() const { return dir / "output"; }
  std::filesystem::path earlier_output() const { return dir / "output.1"; }
  std::filesystem::path upper() const { return dir / "upper"; }
  std::filesystem::path work() const { return dir / "work"; }
  std::filesystem::path merged() const { return dir / "merged"; }  // mounted in the session's own namespace only
  std::filesystem::path bundle() const { return dir / "bundle"; }
  std::filesystem::path runtime_state() const { return dir / "runtime"; }
  std::filesystem::path etc() const { return dir / "etc"; }  // the session's copies of resolv.conf, hosts, hostname
  std::filesystem::path ready_fifo() const { return dir / "ready"; }
  // The folders that each run makes anew; merged() comes first.
  std::vector<std::filesystem::path> of_one_run() const { return {merged(), bundle(), runtime_state(), etc()}; }
  // For session_ids.h. Outside of ROOT/sessions, which is closed; empty, and what is mounted on it is seen in the
  // session's namespace only.
  std::filesystem::path stage() const { return dir.parent_path().parent_path() / "stage"; }
};

// A session whose lock this process holds, and whoever inherits the descriptor.
struct OpenSession {
  SessionRecord record;
  SessionFolder folder;
  UniqueFd lock;
  bool is_new = true;  // false: it has run before
};

// Several processes may use one store at once.
class SessionStore {
 public:
  // Creates ROOT/sessions, 0700: a writable layer may hold setuid programs.
  explicit SessionStore(const std::filesystem::path& root);

  struct NewSession {
    std::string name;  // "" = the id
    std::string image;
    std::string image_digest;
    std::vector<std::string> command;
    std::string stop_signal = {};
    bool remove_at_exit = false;
    std::string options = "{}";
    std::optional<IdPool> ids =
        {};  // where ids of its own come from, that no other session here has; absent = it needs none
  };
  // Throws UsageError if the name is taken or is none: letters, digits, '_', '.', '-', at most 64. Unsupported if no
  // ids are left.
  OpenSession create(const NewSession& wanted);
  // A kept one that goes on with what it wrote. Throws UsageError if it runs, NotFound if it is gone meanwhile.
  OpenSession reopen(const std::string& id);
  void write_record(const SessionFolder& folder, const SessionRecord& record) const;
  // Notes who holds an open session.
  void write_process(const SessionFolder& folder, const RunningProcess& supervisor) const;

  struct Listed {
    SessionRecord record;
    SessionFolder folder;
    bool running = false;
    std::optional<RunningProcess> supervisor = {};  // of a running one, if it has got that far and is seen from here
  };
  // Oldest first. Folders without a record that can be read are left out: they are being made, or swept away.
  std::vector<Listed> list() const;
  // By name or id; absent if there is none.
  std::optional<Listed> find(std::string_view name_or_id) const;

  // Removes the folder and all it holds. Throws UsageError if the session is running.
  void remove(const Listed& session) const;
  // Removes what ended without its clean-up: sessions that were to go at their exit, and half-made ones. Returns their
  // ids.
  std::vector<std::string> sweep() const;

 private:
  std::filesystem::path dir_;
};

std::int64_t now_seconds();  // since 1970

// remove_tree() of a session whose lock the caller holds. The lock file goes last, under the lock of the store: as long
// as there is a folder, others see that it is being removed and leave it alone.
void remove_session_folder(const SessionFolder& folder);
// The same with the rights that this user's sessions had: files of his subordinate ids are removed too.
void remove_session(const SessionFolder& folder);
// cgroups that a runtime left behind under this name. Nothing is an error: they are empty folders, gone at the next
// boot.
void remove_cgroups(std::string_view name);

}  // namespace varve::fuse
