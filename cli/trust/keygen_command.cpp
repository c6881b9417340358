#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/trust/passphrase.h"
#include "core/trust/private_key.h"

namespace varve::cli {
namespace {

struct KeygenArguments {
  std::string prefix = "cosign";
  std::string passphrase_file;
};

void make_keys(const Context& context, const KeygenArguments& arguments) {
  trust::refuse_to_overwrite(arguments.prefix);  // before anybody thinks of a passphrase
  const auto passphrase = read_passphrase(arguments.passphrase_file, arguments.prefix + ".key", true);
  const auto key = trust::PrivateKey::generate();
  trust::write_key_pair(key, arguments.prefix, passphrase);
  const auto made = key.public_key();
  if (context.global.json) {
    return context.print_json({{"private", arguments.prefix + ".key"},
                               {"public", arguments.prefix + ".pub"},
                               {"id", made.id()},
                               {"kind", made.kind()},
                               {"fingerprint", made.fingerprint()}});
  }
  context.out << fmt::format(
      "{}.key  signs: keep it where only the pipeline reads it\n"
      "{}.pub  verifies: name it under [trust] keys on every machine\nkey {} ({})\n",
      arguments.prefix, arguments.prefix, made.id(), made.kind());
}

}  // namespace

void add_keygen_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<KeygenArguments>();
  auto* command = app.add_subcommand("keygen", "Makes a pair of keys to sign with, in cosign's form");
  command->add_option("-o,--output", arguments->prefix, "Write PREFIX.key and PREFIX.pub")
      ->type_name("PREFIX")
      ->capture_default_str();
  command
      ->add_option("--passphrase-file", arguments->passphrase_file,
                   "What encrypts the key; else $COSIGN_PASSWORD, else the terminal asks")
      ->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  varve keygen\n"
      "  COSIGN_PASSWORD= varve keygen -o /etc/varve/keys/ci\n\n"
      "The private key (ECDSA on P-256, PKCS #8, encrypted, mode 0600) is one that `cosign sign --key` and `skopeo "
      "copy\n"
      "--sign-by-sigstore-private-key` take, too; keys that those made are good for `varve sign`. Nothing is "
      "written over.");
  command->callback([&context, arguments] { make_keys(context, *arguments); });
}

}  // namespace varve::cli
