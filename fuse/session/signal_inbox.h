#pragma once
#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string_view>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// Takes the signals that a session hands on to its command (and SIGCHLD) out of a descriptor instead of handlers. While
// it lives they are blocked in this thread; signals that were ignored stay ignored, as nohup(1) and background jobs
// want. Call in a process with one thread.
class SignalInbox {
 public:
  // `outer`: the inbox of the process that this one was forked from; its earlier mask is what programs get.
  explicit SignalInbox(const SignalInbox* outer = nullptr);
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  struct Signal {
    int number = 0;
    bool from_kernel = false;  // a key of the terminal, say: the whole foreground process group got it
  };
  int fd() const { return fd_.get(); }
  // Absent when there is none just now.
  std::optional<Signal> next();
  // The mask from before the outermost inbox, for a child that is about to execute a program.
  void restore_mask() const;

 private:
  sigset_t old_mask_{};
  sigset_t program_mask_{};
  UniqueFd fd_;
};

// "SIGINT", "INT", "2" or "SIGRTMIN+3" as a number that a command can be sent through its session: one that an inbox
// takes out, or SIGKILL. Absent for others.
std::optional<int> find_signal(std::string_view name);

}  // namespace varve::fuse
