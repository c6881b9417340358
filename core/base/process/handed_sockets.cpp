#include "core/base/process/handed_sockets.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/errors.h"

namespace varve {
namespace {

// Behind it a number would not be one of a descriptor.
constexpr int kMaxHandedFds = 1 << 20;

}  // namespace

int count_handed_fds() {
  const char* pid = std::getenv("LISTEN_PID");
  const char* count = std::getenv("LISTEN_FDS");
  if (pid == nullptr || count == nullptr || std::to_string(::getpid()) != pid) return 0;
  const std::string_view text(count);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > kMaxHandedFds)
    fail<UsageError>("LISTEN_FDS={:.40}: not a number of descriptors; leave it to the service manager", text);
  return number;
}

void forget_handed_fds() {
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
}

}  // namespace varve
