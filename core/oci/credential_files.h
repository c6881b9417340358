#pragma once
// Which credential files there are, for reports about this machine. Where they are looked for: CLI.md "Everywhere".
#include <filesystem>
#include <string>
#include <vector>

namespace varve::oci {

struct CredentialFile {
  std::filesystem::path path;
  bool there = false;
  std::string trouble = {};                  // why it cannot be used; "" if it can, or is not there
  std::vector<std::string> registries = {};  // it has something for these
  std::vector<std::string> helpers = {};     // docker-credential-NAME of these names
  // What must never be shown: passwords and tokens, as they stand there and decoded.
  std::vector<std::string> secrets = {};
};

// In the order in which they are asked; no helper is run. `authfile`: as RegistryOptions has it.
std::vector<CredentialFile> find_credential_files(const std::filesystem::path& authfile);

}  // namespace varve::oci
