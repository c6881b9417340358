#include "fuse/session/signal_inbox.h"

#include <sys/signalfd.h>

#include "core/base/errors.h"

namespace varve::fuse {
namespace {

constexpr int kForwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

bool is_ignored(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

SignalInbox::SignalInbox(const SignalInbox* outer) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : kForwarded)
    if (!is_ignored(number)) sigaddset(&set, number);
  if (::sigprocmask(SIG_BLOCK, &set, &old_mask_) != 0) fail_errno("block signals");
  program_mask_ = outer == nullptr ? old_mask_ : outer->program_mask_;
  fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) fail_errno("make a descriptor for signals");
}

SignalInbox::~SignalInbox() { ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr); }

std::optional<SignalInbox::Signal> SignalInbox::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != ssize_t(sizeof info)) return std::nullopt;
  return Signal{.number = int(info.ssi_signo), .from_kernel = info.ssi_code == SI_KERNEL};
}

void SignalInbox::restore_mask() const { ::sigprocmask(SIG_SETMASK, &program_mask_, nullptr); }

}  // namespace varve::fuse
