#include "core/oci/credential_files.h"

#include <algorithm>

#include "core/base/error_text.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/base64.h"
#include "core/base/text/json_document.h"
#include "core/oci/internal/credentials.h"

namespace varve::oci {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1024 * 1024;
constexpr std::size_t kShortestSecret = 8;

void take_login(std::string_view encoded, std::vector<std::string>& secrets) {
  const auto decoded = base64_decode(encoded);
  if (!decoded) return;  // as it stands there it is known
  if (const auto colon = decoded->find(':'); colon != decoded->npos) secrets.push_back(decoded->substr(colon + 1));
}

// Texts of an entry: all but the name of the user may be secret.
void take_secrets(const JsonValue& entry, std::vector<std::string>& secrets) {
  if (!entry.is_object()) return;
  for (const auto& [name, value] : entry.members()) {
    if (!value.is_text() || name == "username" || name == "email") continue;
    secrets.push_back(value.text());
    if (name == "auth") take_login(value.text(), secrets);
  }
}

// Of a file that is no JSON any word may be one.
void take_words(std::string_view text, std::vector<std::string>& secrets) {
  constexpr std::string_view kBetween = " \t\r\n\"'{}[],:";
  for (std::size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != text.npos;) {
    const auto end = std::min(text.find_first_of(kBetween, at), text.size());
    if (const auto word = text.substr(at, end - at); word.size() >= kShortestSecret) {
      secrets.emplace_back(word);
      take_login(word, secrets);
    }
    at = end;
  }
}

void read(CredentialFile& file) {
  const auto content = read_file_if_there(file.path, kMaxFileBytes);
  if (!content) return;
  file.there = true;
  const auto document = [&] {
    try {
      return JsonValue::parse(*content, file.path.string(), {.bytes = kMaxFileBytes});
    } catch (const Error&) {
      take_words(as_text(*content), file.secrets);
      throw;
    }
  }();
  for (const auto& [name, entry] : document.maybe("auths").members()) {
    file.registries.push_back(name);
    take_secrets(entry, file.secrets);
  }
  for (const auto& [name, helper] : document.maybe("credHelpers").members()) {
    file.registries.push_back(name);
    if (helper.is_text()) file.helpers.push_back(helper.text());
  }
  if (const auto store = document.maybe("credsStore"); store && store.is_text() && !store.text().empty())
    file.helpers.push_back(store.text());
}

}  // namespace

std::vector<CredentialFile> find_credential_files(const std::filesystem::path& authfile) {
  const auto places = internal::usual_credential_places(authfile);
  std::vector<CredentialFile> files;
  if (!places.required.empty())
    files.push_back({.path = places.required});
  else
    for (const auto& path : places.files) files.push_back({.path = path});
  for (auto& file : files) {
    try {
      read(file);
      if (!file.there && !places.required.empty()) file.trouble = "there is no such file";
    } catch (const std::exception& error) {
      file.there = true;
      file.trouble = error_text(error);
    }
  }
  return files;
}

}  // namespace varve::oci
