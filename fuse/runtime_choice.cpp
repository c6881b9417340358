#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/errors.h"
#include "fuse/runtime.h"

namespace varve::fuse {
namespace {

// Why an OCI runtime or bubblewrap cannot run this session at all; "" if it may.
std::string objection(const std::string& name, const SessionSpec& spec, const UserIds& ids) {
  const bool user_is_mapped = ids.uids.maps(spec.user.uid) && ids.gids.maps(spec.user.gid);
  if (name == "nvidia" && !ids.is_root) return "it needs root";
  if (name == "runc" || name == "crun" || name == "nvidia")
    return user_is_mapped ? "" : fmt::format("the image's user {} is not mapped here (no range in /etc/subuid)", spec.user.uid);
  // bubblewrap changes the user only by mapping it to the caller.
  if (name == "bwrap" && spec.user.uid != 0 && (ids.is_root || ids.needs_helpers))
    return fmt::format("it cannot become user {}", spec.user.uid);
  return "";
}

std::unique_ptr<Runtime> make_runtime(const std::string& name, const std::filesystem::path& program, bool one_id_mapped) {
  if (name == "runc") return make_runc(program);
  if (name == "nvidia") return make_nvidia_runtime(program);
  if (name == "crun") return make_crun(program);
  if (name == "bwrap") return make_bubblewrap(program, one_id_mapped);
  return make_direct_runtime(one_id_mapped);
}

}  // namespace

std::vector<std::unique_ptr<Runtime>> choose_runtimes(const std::string& wanted, const SessionSpec& spec, const UserIds& ids,
                                                      const std::function<void(const std::string&)>& say) {
  const std::vector<std::string> known = {"runc", "crun", "bwrap", "none", "nvidia"};
  if (wanted != "auto" && std::find(known.begin(), known.end(), wanted) == known.end())
    fail<UsageError>("the runtime '{}' is not known: auto, runc, crun, bwrap, none and nvidia are", wanted);
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (const auto& name : known) {
    if (wanted == "auto" ? name == "nvidia" : wanted != name) continue;
    const auto program = name == "none" ? std::filesystem::path() : find_program(name == "nvidia" ? "nvidia-container-runtime" : name);
    auto reason = name != "none" && program.empty() ? "it is not installed" : objection(name, spec, ids);
    if (reason.empty()) {
      runtimes.push_back(make_runtime(name, program, !ids.is_root && !ids.needs_helpers));
    } else {
      say(fmt::format("not using {}: {}", name, reason));
      if (wanted == name) fail<Unsupported>("{} cannot run this session: {}", name, reason);
    }
  }
  return runtimes;
}

pid_t start_program(const std::vector<std::string>& words, const std::vector<std::string>& environment, const std::vector<int>& keep_fds,
                    const PrepareChild& prepare_child) {
  // Made before the fork, so that the child only makes system calls.
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  for (const auto& one : environment) envp.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const auto child = ::fork();
  if (child < 0) fail_errno("start {}", words.front());
  if (child > 0) return child;
  for (const int fd : keep_fds) ::fcntl(fd, F_SETFD, 0);  // everything else is O_CLOEXEC
  prepare_child();
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(errno == ENOENT ? kNotFound : kNotExecutable);
}

}  // namespace varve::fuse
