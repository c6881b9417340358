#pragma once
// What can carry out a SessionSpec: an OCI runtime, or this program itself.
#include <poll.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/files/unique_fd.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/bundle.h"
#include "fuse/session/session_store.h"

namespace varve::fuse {

// Statuses of a command that never ran, as podman-run(1) and shells give them.
inline constexpr int kOwnFailure = 125;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

// Runs in the children of a runtime just before they execute a program: gives back the signal mask, leaves process
// groups.
using PrepareChild = std::function<void()>;

// One attempt at one session. Used by one thread, in a process that is the first of a PID namespace.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual std::string name() const = 0;

  // Starts the command and returns the process to wait for, whose end status is the command's. Throws if it cannot even
  // begin.
  virtual pid_t start(const SessionSpec& spec, const SessionFolder& folder, const PrepareChild& prepare_child) = 0;
  // What to poll for before readiness is asked for; fd -1 if nothing.
  virtual pollfd ready_poll() const = 0;
  // True once the command is about to be executed. Does not block.
  virtual bool ready() = 0;
  // What to poll for to learn that the command has ended though the runtime has not; fd -1 if that is not watched.
  virtual pollfd ended_poll() const { return {.fd = -1, .events = 0, .revents = 0}; }
  // Ends what the command left running, which the runtime may be waiting for.
  virtual void command_ended() {}
  // Who gets the signals meant for the command; 0 while there is nobody.
  virtual pid_t signal_target() = 0;

  // Why the process ended before the command was ready.
  struct Failure {
    int status = kOwnFailure;  // kNotFound or kNotExecutable if the command is at fault
    std::string reason;
    bool told = false;  // the runtime has put it on standard error by itself
  };
  virtual Failure failure(int wait_status) = 0;
};

// Throws UsageError if it is none of "auto", "runc", "crun", "none" (this program itself), "nvidia".
void check_runtime_name(const std::string& wanted);

// Which runtime this machine's sessions get. The image has no say in it: whoever could make one runtime fail would
// choose a weaker one.
struct RuntimeWish {
  std::string wanted = "auto";
  UserIds ids;
  std::filesystem::path memory;  // the file that keeps what the trials gave until the machine starts anew
  std::function<std::string(Runtime&)>
      trial;  // runs nothing in an empty tree; "" if the runtime got as far as that, else why not
};
// "auto": the first of runc and crun that passed its trial; for a plain user `none` after them, or at once where he has
// one id only, as they could not become an image's user. Never `none` for root, never "nvidia". Why one is left out is
// told to `say`. Throws Unsupported if the one that was asked for is not here, or nothing is left, with the reason of
// each.
std::unique_ptr<Runtime> choose_runtime(const RuntimeWish& wish, const std::function<void(const std::string&)>& say);
// Whether that would have to try one first.
bool needs_trial(const RuntimeWish& wish);
// Where the answers for the sessions of a root are kept.
std::filesystem::path trial_memory(const std::filesystem::path& root);
// Lets the next session try it again: it failed.
void forget_trials(const std::filesystem::path& memory) noexcept;
// Throws Unsupported if this runtime cannot become the image's user with these ids.
void check_user(const Runtime& runtime, const ImageUser& user, const UserIds& ids);

std::unique_ptr<Runtime> make_runc(const std::filesystem::path& program);
// runc's interface: nvidia-container-runtime changes the bundle and becomes runc.
std::unique_ptr<Runtime> make_nvidia_runtime(const std::filesystem::path& program);
std::unique_ptr<Runtime> make_crun(const std::filesystem::path& program);
std::unique_ptr<Runtime> make_direct_runtime(bool one_id_mapped);
// The program of an OCI runtime; "" if it is not here, or `name` is none.
std::filesystem::path program_of_runtime(const std::string& name);
// The words that name a runtime's folder of states and its log, before what it is to do.
std::vector<std::string> runtime_words(const std::string& name, const std::filesystem::path& program,
                                       const std::filesystem::path& state, const std::filesystem::path& log);
std::string container_id(const std::string& session_id);  // as runtimes know it

// A child that executes `words`; `keep_fds` and the standard streams stay open in it, all others are closed, whoever
// opened them.
pid_t start_program(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                    const std::vector<int>& keep_fds, const PrepareChild& prepare_child);

// What an OCI runtime wrote to its log (lines of JSON): the last message of level "error"; "" if there is none.
std::string last_log_error(std::string_view log);
// Sorts a runtime's own words about a failed start: kNotFound, kNotExecutable or kOwnFailure.
int status_of_start_failure(std::string_view reason);

}  // namespace varve::fuse
