#pragma once
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>

#include "core/base/files/unique_fd.h"
#include "fuse/session/session.h"

namespace varve::test {

inline constexpr uid_t kPlainUser = 12345;

// Who runs a session with what.
struct Way {
  std::string runtime;
  uid_t uid = 0;
};
void PrintTo(const Way& way, std::ostream* out);

// Why this machine cannot have such sessions in a test; "" if it can.
std::string why_skipped(const Way& way);

// Plain users' sessions need folders that are theirs.
void give(const std::filesystem::path& tree, uid_t uid);

struct SessionOutcome {
  int status = 0;  // as a shell would show it
  std::string out;
  std::string err;  // with a line "[ready]", and "[failure] ..." if the command never ran
};

// `varve run` without its command line and its daemon: run_session() in a process of its own, perhaps as another user,
// with standard output and error in files. Killed at the end if it still runs.
class SessionProcess {
 public:
  struct Options {
    uid_t uid = 0;
    bool terminal = false;              // standard streams are a terminal of its own
    std::function<void()> before = {};  // runs in the process first, as root
    std::function<void()> after = {};   // runs in it when the session has ended
  };
  SessionProcess(std::filesystem::path log_dir, const fuse::SessionRequest& request)
      : SessionProcess(std::move(log_dir), request, Options{}) {}
  SessionProcess(std::filesystem::path log_dir, const fuse::SessionRequest& request, const Options& options);
  ~SessionProcess();
  SessionProcess(const SessionProcess&) = delete;
  SessionProcess& operator=(const SessionProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The process that holds the session; 0 if it is gone.
  pid_t supervisor() const;
  void type(const std::string& text) const;  // at its terminal
  // A key that this terminal obeys itself until the session has taken it over: waits for that.
  void press(char key) const;
  // Returns when it has shown this. crun takes what a session says last with it if it ends at once.
  void wait_to_see(const std::string& text);
  void hang_up() { terminal_.reset(); }
  void resize(unsigned short rows, unsigned short columns) const;
  SessionOutcome wait();

 private:
  bool read_terminal();

  std::filesystem::path log_dir_;
  UniqueFd terminal_;
  std::string shown_;  // by it
  pid_t pid_ = 0;
};

// The next line that a session's script writes to a FIFO that is open here (O_RDWR | O_NONBLOCK); what the session said
// if it ends before.
std::string next_line(const UniqueFd& lines, SessionProcess& session);

// Whether this user's sessions can have user namespaces: not in a chroot, nor where a setting of the kernel forbids
// them.
bool has_user_namespaces(uid_t uid);

// shared/lower0, made by make_tiny_root(), once more as shared/lower12345, the plain user's.
void copy_for_plain_user(const std::filesystem::path& shared);

}  // namespace varve::test
