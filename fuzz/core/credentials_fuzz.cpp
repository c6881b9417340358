// A credential file with any content: refused, or it says who we are, in words that it holds. Helpers that it names are
// not there.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/internal/credentials.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  static const bool no_helpers = ::setenv("PATH", "/nowhere", 1) == 0;
  if (!no_helpers) std::abort();
  const UniqueFd file(::memfd_create("credentials", MFD_CLOEXEC));
  write_all(file.get(), std::as_bytes(std::span(data, size)), "the input");
  const oci::internal::CredentialPlaces places{.required = "/proc/self/fd/" + std::to_string(file.get()), .files = {}};
  for (const auto* host : {"reg.example:5000", "docker.io"}) {
    try {
      const auto found = oci::internal::find_credential(places, host, "team/app");
      if (found && found->username.empty() && found->password.empty() && found->identity_token.empty()) std::abort();
    } catch (const Error&) {
    }
  }
  return 0;
}
