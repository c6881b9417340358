#pragma once
// Takes secrets out of texts that leave the machine: `varve doctor`.
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace varve::cli {

// What stands in place of a secret.
inline constexpr std::string_view kMasked = "***";

// Masked are, in any text: the user part of URLs and their queries; what is behind a name that says it is secret
// (password=..., "token": "...", --secret ...); HTTP credentials (Basic, Bearer); tokens that their first letters give
// away (GitHub, GitLab, Docker, AWS, Slack, Hugging Face, JWT); private keys in PEM; and the secrets that were added.
// Digests, references and paths stay. In doubt a word too much goes.
class SecretFilter {
 public:
  // Never shown from now on. Too short a one (under four bytes) could be any word and is passed over; up to seven bytes
  // it is found as a word of its own only.
  void add(std::string_view secret);

  std::string text(std::string_view text) const;
  // All texts of it, names of members too.
  nlohmann::json document(const nlohmann::json& document) const;

 private:
  // Longest first: one may be part of another.
  struct Longer {
    bool operator()(const std::string& a, const std::string& b) const {
      return a.size() != b.size() ? a.size() > b.size() : a < b;
    }
  };
  std::set<std::string, Longer> known_;
};

// Whether a variable or member of this name holds a secret: REGISTRY_PASSWORD, identitytoken.
bool names_a_secret(std::string_view name);

}  // namespace varve::cli
