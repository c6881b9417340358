#include "core/trust/internal/pem.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <array>
#include <memory>

#include "core/base/errors.h"
#include "core/base/free_with.h"
#include "core/trust/public_key.h"

namespace varve::trust::internal {
namespace {

using Bio = std::unique_ptr<BIO, FreeWith<::BIO_free_all>>;

void free_openssl(void* memory) { ::OPENSSL_free(memory); }

}  // namespace

std::string openssl_error() {
  std::array<char, 256> text{};
  const auto code = ::ERR_peek_last_error();
  ::ERR_clear_error();
  if (code == 0) return "no reason given";
  ::ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

PemBlock read_pem(std::string_view text, std::string_view what) {
  if (text.size() > kMaxKeyFileBytes) fail<Unsupported>("{}: {} bytes are no key", what, text.size());
  const Bio bio(text.empty() ? nullptr : ::BIO_new_mem_buf(text.data(), int(text.size())));
  if (!bio && !text.empty()) throw std::bad_alloc();
  char* label = nullptr;
  char* header = nullptr;
  unsigned char* data = nullptr;
  long length = 0;
  if (!bio || ::PEM_read_bio(bio.get(), &label, &header, &data, &length) != 1) {
    ::ERR_clear_error();
    fail<CorruptData>("{}: no PEM block (-----BEGIN …) in it", what);
  }
  const std::unique_ptr<void, FreeWith<free_openssl>> owned_label(label), owned_header(header);
  PemBlock block{.label = label, .content = to_bytes(std::as_bytes(std::span(data, std::size_t(length))))};
  const bool has_header = header != nullptr && *header != '\0';
  ::OPENSSL_clear_free(data, std::size_t(length));
  if (has_header)
    fail<Unsupported>("{}: a key encrypted in the old way of OpenSSL; write it anew: openssl pkcs8 -topk8 -nocrypt",
                      what);
  return block;
}

std::string write_pem(std::string_view label, ByteView content) {
  const Bio bio(::BIO_new(::BIO_s_mem()));
  const auto* bytes = reinterpret_cast<const unsigned char*>(content.data());
  if (!bio || ::PEM_write_bio(bio.get(), std::string(label).c_str(), "", bytes, long(content.size())) == 0)
    fail<Error>("write PEM: {}", openssl_error());
  const char* text = nullptr;
  const long length = ::BIO_get_mem_data(bio.get(), &text);
  return {text, std::size_t(length)};
}

}  // namespace varve::trust::internal
