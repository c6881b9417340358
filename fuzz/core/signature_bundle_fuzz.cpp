// Sigstore bundles and the statements in them, as a registry may send them. What is read is written again and read as
// the same.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/trust/bundle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  static const auto key = trust::PrivateKey::generate();
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto bundle = trust::Bundle::parse(bytes, "input");
    if (bundle.vouches_for(Digest(), key.public_key())) std::abort();
    const auto again = trust::Bundle::parse(as_bytes(bundle.to_json()), "again");
    if (again.payload != bundle.payload || again.signature != bundle.signature) std::abort();
  } catch (const Error&) {
  }
  // As a statement that the key has signed: only of the digest it names.
  trust::Bundle made;
  made.payload = to_bytes(bytes);
  const auto text = fmt::format("DSSEv1 28 application/vnd.in-toto+json {} {}", size, as_text(bytes));
  made.signature = key.sign(as_bytes(text));
  made.vouches_for(Digest(), key.public_key());
  return 0;
}
