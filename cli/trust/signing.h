#pragma once
// Signing what was indexed: shared by the commands that publish an index and by `varve sign`.
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <nlohmann/json_fwd.hpp>

#include "cli/command.h"
#include "core/index/format/image_index.h"
#include "core/index/local_index.h"
#include "core/trust/private_key.h"

namespace varve::cli {

struct SigningOptions {
  std::string key;  // "" = nothing is signed
  std::string passphrase_file;
  std::string identity;  // the repository that it is signed for; "" = where it lies
  bool bundle = false;
};

// --key K (or --sign K where signing is not what the command is for), --passphrase-file, --identity, --bundle.
void add_signing_options(CLI::App& command, SigningOptions& options, const std::string& key_option);

struct SignedManifest {
  std::string kind;  // "index", "layer-index", "image"
  Digest manifest;
  std::string reference;  // that it was signed as
  bool added = false;     // false: this key had signed it before
};

// A key that is open, for all that one command signs.
class IndexSigner {
 public:
  // Asks for the passphrase. Throws UsageError for an identity that is none.
  explicit IndexSigner(const SigningOptions& options);

  // Signs an index of the image that lies in `repository`, and what is listed there of the indexes of its layers and
  // says the same, for `identity` ("" = what the options say). The caller knows that it may be signed: who signs
  // vouches for all that is in it.
  std::vector<SignedManifest> sign_index(const oci::Image& image, const index::FoundIndex& index,
                                         oci::Repository& repository, const std::string& identity = {}) const;
  // True if the options say for which repository.
  bool has_identity() const { return !options_.identity.empty(); }
  // The same for a further index that was just published there and differs from `loaded` in what it notes alone. Throws
  // trust::Untrusted, and signs nothing, if nobody vouches for `loaded`.
  std::vector<SignedManifest> sign_further_index(const oci::Image& image, const index::LoadedIndex& loaded,
                                                 const Digest& index_manifest, oci::Repository& repository) const;
  SignedManifest sign_image(const oci::Image& image) const;
  trust::PublicKey public_key() const { return key_.public_key(); }

 private:
  SignedManifest sign(const oci::Descriptor& manifest, std::string kind, const std::string& selector,
                      oci::Repository& repository, const std::string& identity = {}) const;

  const SigningOptions options_;
  const trust::PrivateKey key_;
};

nlohmann::json to_json(const std::vector<SignedManifest>& manifests, const trust::PublicKey& key);
// "signed by 0123456789ab: the index and those of 3 layers".
std::string summary_of(const std::vector<SignedManifest>& manifests, const trust::PublicKey& key);

// What a command says that published a further index of an image and was not told to sign it, if keys are in use here;
// "" otherwise.
std::string unsigned_warning(const Context& context, const std::string& image);

}  // namespace varve::cli
