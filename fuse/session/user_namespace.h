#pragma once
// Children in namespaces of their own. In a user namespace a plain user is root over what is his.
#include <sys/types.h>

#include <functional>

#include "core/base/files/unique_fd.h"
#include "fuse/mount/user_ids.h"

namespace varve::fuse {

// A forked child that runs `body` in new namespaces (`clone_flags`: CLONE_NEWNS, CLONE_NEWPID ...) and ends with its
// result; for a plain user in a user namespace with `ids` too, as root of it. `body` starts when the ids are mapped. An
// exception in it is one line on stderr and status 125. Call from a process with one thread. Throws std::system_error
// or Unsupported (with what the machine would have to allow).
pid_t start_in_namespaces(int clone_flags, const UserIds& ids, const std::function<int()>& body);

// A user namespace with `ids` (not those of root) in which nothing runs: mounts are shown with the owners of one.
UniqueFd make_user_namespace(const UserIds& ids);

// In a user namespace with these ids, made here or entered: this process is its root from now on, in no other group.
void become_root_inside(const UserIds& ids);

// waitpid() to the end, EINTR retried; the status as wait(2) gives it.
int wait_for(pid_t child);
// As a shell reports it: the exit status, or 128 + signal.
int shell_status(int wait_status);

}  // namespace varve::fuse
