// Key files: PEM, the JSON of encrypted keys, DER. A passphrase is asked for only when the parameters of scrypt were
// found to be those of cosign; deriving a key is not what is tested here.
#include <cstdint>
#include <string>

#include "core/base/errors.h"
#include "core/trust/private_key.h"

namespace {

struct Asked {};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto text = as_text(std::as_bytes(std::span(data, size)));
  try {
    trust::PrivateKey::parse(
        text, []() -> std::string { throw Asked(); }, "input");
  } catch (const Error&) {
  } catch (const Asked&) {
  }
  try {
    trust::PublicKey::parse(text, "input").pem();
  } catch (const Error&) {
  }
  return 0;
}
