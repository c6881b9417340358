#include <algorithm>
#include <cctype>
#include <chrono>

#include "core/base/errors.h"
#include "core/base/files/unique_fd.h"
#include "core/base/process/child_process.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"
#include "core/oci/internal/credentials.h"

namespace varve::oci::internal {
namespace {

constexpr std::size_t kMaxAnswerBytes = 1024 * 1024;
constexpr std::chrono::seconds kTimeLimit{30};

}  // namespace

std::optional<Credential> ask_credential_helper(const std::string& name, const std::string& server) {
  // The name becomes part of a program's name; it must not become a path.
  const bool is_plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (!is_plain) fail<Error>("'{}' is no valid name of a credential helper", name);
  const auto program = "docker-credential-" + name;
  const auto line = server + "\n";
  const auto result = run_child({.words = {program, "get"},
                                 .input = line,
                                 .limit = kTimeLimit,
                                 .max_output = kMaxAnswerBytes + 1,
                                 .environment = {},
                                 .shows_errors = true},
                                CancelFlag());
  if (!result.err.empty()) fail<Error>("credential helper {}", trimmed(result.err));
  if (result.timed_out) fail<Error>("credential helper {}: no answer within {} s", program, kTimeLimit.count());
  if (result.out.size() > kMaxAnswerBytes) fail<Error>("credential helper {}: an endless answer", program);
  if (result.exit_status != 0) {
    if (result.out.find("credentials not found in native keychain") != std::string::npos) return std::nullopt;
    fail<Error>("credential helper {} failed with status {} for {}", program, result.exit_status,
                server);  // its output may hold secrets
  }
  const auto what = "the answer of credential helper " + program;
  const auto json = JsonValue::parse(result.out, what, {.bytes = kMaxAnswerBytes});
  Credential credential{
      .username = json.maybe("Username").text(), .password = json.maybe("Secret").text(), .identity_token = {}};
  if (credential.username == "<token>")
    credential = {.username = {}, .password = {}, .identity_token = credential.password};
  return credential;
}

}  // namespace varve::oci::internal
