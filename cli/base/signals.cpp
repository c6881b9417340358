#include "cli/base/signals.h"

#include <atomic>

namespace varve::cli {
namespace {

// A handler takes no argument of ours, so the flag it sets must be reachable from here.
std::atomic<CancelFlag*>& flag_of_handler() {
  static std::atomic<CancelFlag*> flag = nullptr;
  return flag;
}

std::atomic<int>& signal_of_handler() {
  static std::atomic<int> signal = 0;
  return signal;
}

extern "C" void varve_cancel_on_signal(int signal) {
  signal_of_handler().store(signal);
  if (auto* flag = flag_of_handler().load()) flag->cancel();
}

}  // namespace

CancelOnSignals::CancelOnSignals(CancelFlag& flag) {
  signal_of_handler().store(0);
  flag_of_handler().store(&flag);
  struct sigaction action {};
  action.sa_handler = varve_cancel_on_signal;
  action.sa_flags = int(SA_RESETHAND);  // no SA_RESTART: a blocking call returns, and its loop looks at the flag
  // Ignored signals stay ignored: nohup(1), jobs in the background of a script.
  ::sigaction(SIGINT, nullptr, &old_interrupt_);
  if (old_interrupt_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, nullptr, &old_terminate_);
  if (old_terminate_.sa_handler != SIG_IGN) ::sigaction(SIGTERM, &action, nullptr);
}

CancelOnSignals::~CancelOnSignals() {
  ::sigaction(SIGINT, &old_interrupt_, nullptr);
  ::sigaction(SIGTERM, &old_terminate_, nullptr);
  flag_of_handler().store(nullptr);
}

int CancelOnSignals::received() const { return signal_of_handler().load(); }

}  // namespace varve::cli
