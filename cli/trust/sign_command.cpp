#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/trust/signing.h"
#include "core/base/errors.h"
#include "core/index/index_sources.h"
#include "core/trust/sign.h"

namespace varve::cli {
namespace {

struct SignArguments {
  std::string image;
  SigningOptions signing;
  bool sign_image = false;
};

struct IndexToSign {
  index::FoundIndex index;
  std::shared_ptr<oci::Repository> repository;  // where it lies, and its signatures will
  std::string identity;                         // that of the image, where it lies elsewhere; else ""
};

// The one that machines would take, of those that may be signed: whoever signs vouches for all that is in it.
IndexToSign index_to_sign(const index::LocalIndex& local, const oci::Image& image) {
  std::optional<IndexToSign> chosen;
  std::size_t others = 0;
  const auto troubles = index::visit_index_sources(image, [&](const index::IndexSource& source) {
    index::visit_indexes(*source.repository, image, [&](index::FoundIndex found) {
      if (!local.judge(image, found, *source.repository, source.index_from.empty(), source.index_from).vouched) {
        ++others;
        return false;
      }
      chosen = IndexToSign{.index = std::move(found),
                           .repository = source.repository,
                           .identity = source.index_from.empty() ? "" : trust::identity_of(*image.repository)};
      return true;
    });
    return chosen.has_value();
  });
  if (chosen) return std::move(*chosen);
  if (!troubles.empty()) std::rethrow_exception(troubles.front());
  if (others == 0)
    fail<NotFound>("{}: image {} is not indexed; run: varve index {} --sign KEY", image.repository->name(),
                   image.digest().to_string(), image.typed());
  throw trust::Untrusted(fmt::format(
      "{}: none of the {} indexes of image {} was built here or is signed by a key that counts here, and who signs "
      "vouches for what is in it; run: varve index --force {} --sign KEY",
      image.repository->name(), others, image.digest().to_string(), image.typed()));
}

void sign(const Context& context, const SignArguments& arguments) {
  const IndexSigner signer(arguments.signing);
  const auto image = context.open_image(arguments.image);
  const auto local = context.local_index();
  const auto [index, repository, identity] = index_to_sign(local, image);
  auto done = signer.sign_index(image, index, *repository, signer.has_identity() ? "" : identity);
  if (arguments.sign_image) done.push_back(signer.sign_image(image));
  const auto key = signer.public_key();
  if (context.global.json) {
    return context.print_json({{"image", image.digest().to_string()},
                               {"index", index.document.descriptor.digest.to_string()},
                               {"key", {{"id", key.id()}, {"kind", key.kind()}, {"fingerprint", key.fingerprint()}}},
                               {"signatures", to_json(done, key)}});
  }
  context.out << fmt::format("image  {}\nindex  {}\n{}\n", image.digest().to_string(),
                             index.document.descriptor.digest.to_string(), summary_of(done, key));
}

}  // namespace

void add_sign_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<SignArguments>();
  auto* command =
      app.add_subcommand("sign", "Signs the index of an image, beside the image, so that machines know who made it");
  command->add_option("IMAGE", arguments->image, "The image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]")->required();
  add_signing_options(*command, arguments->signing, "--key");
  command->get_option("--key")->required();
  command->add_flag(
      "--image", arguments->sign_image,
      "Sign the image's manifest as well, as `cosign sign` does, under the name by which it was asked for");
  command->footer(
      "Examples:\n"
      "  varve sign registry.example/team/notebook:v1 --key ci.key\n"
      "  varve sign oci:images:v1 --key ci.key --identity registry.example/team/notebook\n\n"
      "Only an index that this machine has built, or that a trusted key has signed, is signed. The indexes of its "
      "layers are signed with it, so that\n"
      "others may use them again. Written is cosign's tag scheme (sha256-HEX.sig), which podman, skopeo and every "
      "cosign read; with --bundle a sigstore bundle\n"
      "as well. A signature is of one index: `varve index --force`, `profile attach` and `prune apply --index-only` "
      "make another, which is to be signed again\n"
      "(they take --sign KEY). In a layout folder the signature is for no registry, unless --identity says for which.");
  command->callback([&context, arguments] { sign(context, *arguments); });
}

}  // namespace varve::cli
