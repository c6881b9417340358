#include "cli/trust/signing.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "cli/trust/passphrase.h"
#include "core/base/errors.h"
#include "core/trust/docker_name.h"
#include "core/trust/sign.h"

namespace varve::cli {
namespace {

trust::PrivateKey open_key(const SigningOptions& options) {
  return trust::PrivateKey::read(options.key,
                                 [&] { return read_passphrase(options.passphrase_file, options.key, false); });
}

Digest digest_or_none(const std::optional<oci::Descriptor>& blob) { return blob ? blob->digest : Digest(); }

bool same_blobs(const index::LayerIndexBlobs& a, const index::LayerIndexBlobs& b) {
  return a.map.digest == b.map.digest && a.entries.digest == b.entries.digest &&
         digest_or_none(a.windows) == digest_or_none(b.windows);
}

}  // namespace

void add_signing_options(CLI::App& command, SigningOptions& options, const std::string& key_option) {
  auto* key = command
                  .add_option(key_option, options.key,
                              "Sign with this private key: of `varve keygen`, cosign or skopeo, or plain PKCS #8 (PEM)")
                  ->type_name("KEY");
  command
      .add_option("--passphrase-file", options.passphrase_file,
                  "What opens the key; else $COSIGN_PASSWORD, else the terminal asks")
      ->type_name("FILE")
      ->needs(key);
  command.add_option("--identity", options.identity, "The repository that it is signed for, if not where it lies")
      ->type_name("HOST/REPO")
      ->needs(key);
  command.add_flag("--bundle", options.bundle, "Also as a sigstore bundle (cosign 3's own form)")->needs(key);
}

IndexSigner::IndexSigner(const SigningOptions& options) : options_(options), key_(open_key(options)) {
  if (options_.identity.empty()) return;
  const auto name = trust::DockerName::parse(options_.identity);
  if (!name || !name->is_name_only())
    fail<UsageError>("--identity {}: write the name of a repository, HOST/REPO, without tag or digest",
                     options_.identity);
}

SignedManifest IndexSigner::sign(const oci::Descriptor& manifest, std::string kind, const std::string& selector,
                                 oci::Repository& repository, const std::string& identity) const {
  const auto name = !identity.empty()           ? identity
                    : options_.identity.empty() ? trust::identity_of(repository)
                                                : trust::DockerName::parse(options_.identity)->repository;
  SignedManifest done{
      .kind = std::move(kind), .manifest = manifest.digest, .reference = name + selector, .added = false};
  done.added = trust::sign_manifest(repository, manifest, done.reference, {.key = key_, .bundle = options_.bundle});
  return done;
}

std::vector<SignedManifest> IndexSigner::sign_index(const oci::Image& image, const index::FoundIndex& index,
                                                    oci::Repository& repository, const std::string& identity) const {
  std::vector<SignedManifest> done;
  const auto sign_one = [&](const oci::Descriptor& manifest, std::string kind) {
    done.push_back(sign(manifest, std::move(kind), "@" + manifest.digest.to_string(), repository, identity));
  };
  sign_one(index.document.descriptor, "index");
  std::set<Digest> looked_at;
  for (std::size_t i = 0; i < image.manifest.layers.size(); ++i) {
    const auto& ours = index.blobs.layers.at(i);
    if (!looked_at.insert(ours.layer_digest).second) continue;
    const auto sign_ours = [&](const index::FoundLayerIndex& found) {
      if (same_blobs(found.blobs, ours)) sign_one(found.document.descriptor, "layer-index");
      return false;
    };
    index::visit_layer_indexes(repository, ours.layer_digest, &image.digest(), sign_ours);
  }
  return done;
}

std::vector<SignedManifest> IndexSigner::sign_further_index(const oci::Image& image, const index::LoadedIndex& loaded,
                                                            const Digest& index_manifest,
                                                            oci::Repository& repository) const {
  if (!loaded.judgement.vouched)
    throw trust::Untrusted(fmt::format(
        "index {} was published, but is not signed: nobody who counts here vouches for the one that it was made of "
        "({})",
        index_manifest.to_string(), loaded.judgement.rule));
  index::FoundIndex index;
  index.document = repository.manifest(index_manifest.to_string());
  index.blobs = index::parse_index_manifest(index.document, image);
  return sign_index(image, index, repository);
}

SignedManifest IndexSigner::sign_image(const oci::Image& image) const {
  // As it was asked for: a signature by tag says that this is what the tag means.
  const auto& selector = image.selector;
  const auto suffix =
      selector.empty() || selector.starts_with("sha256:") ? "@" + image.digest().to_string() : ":" + selector;
  return sign(image.document.descriptor, "image", suffix, *image.repository);
}

nlohmann::json to_json(const std::vector<SignedManifest>& manifests, const trust::PublicKey& key) {
  auto list = nlohmann::json::array();
  for (const auto& one : manifests)
    list.push_back({{"kind", one.kind},
                    {"manifest", one.manifest.to_string()},
                    {"reference", one.reference},
                    {"key", key.id()},
                    {"added", one.added}});
  return list;
}

std::string summary_of(const std::vector<SignedManifest>& manifests, const trust::PublicKey& key) {
  // One may have been signed for two repositories.
  const auto count = [&](std::string_view kind) {
    std::set<Digest> signed_ones;
    for (const auto& one : manifests)
      if (one.kind == kind) signed_ones.insert(one.manifest);
    return signed_ones.size();
  };
  const auto added = std::ranges::count(manifests, true, &SignedManifest::added);
  std::string text = "signed by " + key.id() + ": ";
  if (count("index") != 0) text += fmt::format("the index and those of {} layers", count("layer-index"));
  if (count("image") != 0) text += count("index") != 0 ? ", and the image" : "the image";
  if (added == 0) text += " (all had been signed before)";
  return text;
}

std::string unsigned_warning(const Context& context, const std::string& image) {
  const auto& trust = context.global.trust;
  const bool keys =
      !trust.keys.empty() || std::ranges::any_of(trust.scopes, [](const auto& scope) { return !scope.keys.empty(); });
  if (!keys) return {};
  return fmt::format(
      "the new index is not signed: machines that ask for signatures do not take it before you run: varve sign {} "
      "--key KEY",
      image);
}

}  // namespace varve::cli
