#pragma once
// Where the passphrase of a signing key comes from: --passphrase-file, $COSIGN_PASSWORD (as cosign and skopeo have it),
// else the terminal.
#include <filesystem>
#include <string>

namespace varve::cli {

// `what` is the key, for the question. `is_new` asks twice. Empty is a passphrase too. Throws UsageError where there is
// neither file, variable nor terminal.
std::string read_passphrase(const std::filesystem::path& file, const std::string& what, bool is_new);

}  // namespace varve::cli
