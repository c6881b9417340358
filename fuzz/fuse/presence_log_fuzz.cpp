// A presence log with any content: opening it must leave a log that can be used, and what is recorded from then on must
// be found again.
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/files/file.h"
#include "fuse/stream/presence_log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  using fuse::PresenceLog;
  const fuse::PresenceIdentity identity{.kind = fuse::PresenceIdentity::Kind::kSpans,
                                        .object = digest_of("layer"),
                                        .cut = digest_of("cut"),
                                        .units = 1'000,
                                        .data_bytes = 4'096'000};
  const UniqueFd file(::memfd_create("log", MFD_CLOEXEC));
  write_all(file.get(), std::as_bytes(std::span(data, size)), "log");
  const auto path = "/proc/self/fd/" + std::to_string(file.get());
  auto opened = PresenceLog::open(path, identity);
  if (opened.present.size() != identity.units) std::abort();
  opened.log->append({{.first = 10, .count = 5}}, true);
  auto expected = opened.present;
  for (std::size_t unit = 10; unit < 15; ++unit) expected[unit] = true;
  const auto again = PresenceLog::open(path, identity);
  if (again.found != PresenceLog::Found::kSame || !again.reason.empty() || again.present != expected) std::abort();
  return 0;
}
