// What an OCI runtime wrote to its log: the image has a hand in its words.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuse/session/runtimes/runtime.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::fuse;
  const auto status =
      status_of_start_failure(last_log_error(std::string_view(reinterpret_cast<const char*>(data), size)));
  if (status != kNotFound && status != kNotExecutable && status != kOwnFailure) std::abort();
  return 0;
}
