#include "fuse/session/signal_inbox.h"

#include <sys/signalfd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

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
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) sigaddset(&set, number);
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

std::optional<int> find_signal(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  const auto number_in = [](std::string_view digits) {
    int number = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() ? number : -1;
  };
  int number = number_in(name);
  if (constexpr std::string_view kFirst = "RTMIN", kLast = "RTMAX"; name == kFirst) {
    number = SIGRTMIN;
  } else if (name == kLast) {
    number = SIGRTMAX;
  } else if (name.starts_with("RTMIN+")) {
    number = SIGRTMIN + number_in(name.substr(6));
  } else if (name.starts_with("RTMAX-")) {
    number = SIGRTMAX - number_in(name.substr(6));
  } else if (number < 0) {
    for (const int known : kForwarded)
      if (name == ::sigabbrev_np(known)) number = known;
    if (name == "KILL") number = SIGKILL;
  }
  const bool is_sent = number == SIGKILL || std::ranges::find(kForwarded, number) != std::end(kForwarded) ||
                       (number >= SIGRTMIN && number <= SIGRTMAX);
  return is_sent ? std::optional(number) : std::nullopt;
}

void SignalInbox::restore_mask() const { ::sigprocmask(SIG_SETMASK, &program_mask_, nullptr); }

}  // namespace varve::fuse
