#include "core/oci/internal/system_authorities.h"

#include <unistd.h>

#include <filesystem>
#include <new>

#include <curl/curl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include "core/base/errors.h"
#include "core/base/free_with.h"

namespace varve::oci::internal {
namespace {

// DIGEST.NUMBER, as openssl-rehash(1) names what it links.
bool is_link_by_digest(std::string_view name) {
  constexpr std::size_t kDigits = 8;
  return name.size() > kDigits + 1 && name[kDigits] == '.' &&
         name.substr(0, kDigits).find_first_not_of("0123456789abcdef") == name.npos &&
         name.substr(kDigits + 1).find_first_not_of("0123456789") == name.npos;
}

bool has_links(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (is_link_by_digest(at->path().filename().native())) return true;
  return false;
}

std::shared_ptr<X509_STORE> make_store() {
  std::shared_ptr<X509_STORE> store(::X509_STORE_new(), ::X509_STORE_free);
  if (!store) throw std::bad_alloc();
  // As libcurl has it: an authority that is trusted ends a chain, whoever vouches for it in turn.
  ::X509_STORE_set_flags(store.get(), X509_V_FLAG_TRUSTED_FIRST | X509_V_FLAG_PARTIAL_CHAIN);
  return store;
}

CURLcode give_store(CURL*, void* context, void* store) {
  ::SSL_CTX_set1_cert_store(static_cast<SSL_CTX*>(context), static_cast<X509_STORE*>(store));
  return CURLE_OK;
}

}  // namespace

SystemAuthorities& SystemAuthorities::of_machine() {
  static SystemAuthorities authorities = [] {
    const std::unique_ptr<CURL, FreeWith<::curl_easy_cleanup>> easy(::curl_easy_init());
    const auto place = [&](CURLINFO info) {
      const char* text = nullptr;
      return easy && ::curl_easy_getinfo(easy.get(), info, &text) == CURLE_OK && text != nullptr ? std::string(text)
                                                                                                 : std::string();
    };
    return SystemAuthorities(place(CURLINFO_CAINFO), place(CURLINFO_CAPATH));
  }();
  return authorities;
}

SystemAuthorities::Known SystemAuthorities::make(bool with_file) const {
  Known made{.store = make_store()};
  const bool linked = has_links(folder_);
  if (linked) ::X509_STORE_load_path(made.store.get(), folder_.c_str());
  if (!linked || with_file) {
    const bool read = ::X509_STORE_load_file(made.store.get(), file_.c_str()) == 1;
    ::ERR_clear_error();  // what is left there the next connection of this thread would take for its own
    if (!read && ::access(file_.c_str(), F_OK) == 0)
      fail<Error>("{}: the certificates of this machine's authorities cannot be read from it", file_);
    made.whole = true;
  }
  return made;
}

SystemAuthorities::Known SystemAuthorities::known(bool with_file) {
  const std::lock_guard guard(mutex_);
  auto now = stamps();
  const bool as_held = held_.store && now == stamps_;
  if (!as_held || (with_file && !held_.whole)) {
    held_ = make(with_file);
    stamps_ = std::move(now);
  }
  return held_;
}

void verify_by(void* easy, X509_STORE* store) {
  if (::curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, &give_store) != CURLE_OK) return;
  ::curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, store);
  for (const auto place : {CURLOPT_CAINFO, CURLOPT_CAPATH, CURLOPT_PROXY_CAINFO, CURLOPT_PROXY_CAPATH})
    ::curl_easy_setopt(easy, place, nullptr);
  // Else it keeps the first store that it sees, for the later connections of the same handle, whatever they are given.
  ::curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L);
}

}  // namespace varve::oci::internal
