#pragma once
// Into a session that this program itself carries out (runtime `none`).
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/files/unique_fd.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/bundle.h"
#include "fuse/session/session_store.h"
#include "fuse/session/signal_inbox.h"

namespace varve::fuse {

// Who enters a mount namespace begins at its root, which is not the root of a session that was made in a chroot: it is
// opened before, and entered then. Plain users make no chroot.
UniqueFd root_of(pid_t process);
void enter_root(const UniqueFd& root);

class DirectEntry {
 public:
  // Opens the namespaces of the session that this supervisor holds, of which the caller sees to it that it lives on.
  DirectEntry(const SessionFolder& folder, pid_t supervisor);

  // This process is in them from now on, as root of the session's user namespace (`ids`) if it has one; of the PID
  // namespace only the children that it makes are. Call from a process with one thread.
  void enter(const UserIds& ids) const;
  // In such a child: runs what `spec` says a process is (bundle.h, read_process) as the session's first command is run,
  // and returns its status as a shell reports it. `outer` is the inbox of the parent.
  static int run(const SessionSpec& spec, bool one_id_mapped, const SignalInbox& outer);

 private:
  UniqueFd root_;                                             // of the session's processes; none for a plain user
  std::vector<std::pair<std::string, UniqueFd>> namespaces_;  // that are not this process's own, in order of entering
};

}  // namespace varve::fuse
