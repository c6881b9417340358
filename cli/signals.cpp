#include "cli/signals.h"

#include <atomic>

namespace varve::cli {
namespace {

// A handler takes no argument of ours, so the flag it sets must be reachable from here.
std::atomic<CancelFlag*>& flag_of_handler() {
  static std::atomic<CancelFlag*> flag = nullptr;
  return flag;
}

extern "C" void varve_cancel_on_signal(int) {
  if (auto* flag = flag_of_handler().load()) flag->cancel();
}

}  // namespace

CancelOnSignals::CancelOnSignals(CancelFlag& flag) {
  flag_of_handler().store(&flag);
  struct sigaction action{};
  action.sa_handler = varve_cancel_on_signal;
  action.sa_flags = int(SA_RESETHAND);  // no SA_RESTART: a blocking call returns, and its loop looks at the flag
  ::sigaction(SIGINT, &action, &old_interrupt_);
  ::sigaction(SIGTERM, &action, &old_terminate_);
}

CancelOnSignals::~CancelOnSignals() {
  ::sigaction(SIGINT, &old_interrupt_, nullptr);
  ::sigaction(SIGTERM, &old_terminate_, nullptr);
  flag_of_handler().store(nullptr);
}

}  // namespace varve::cli
