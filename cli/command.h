#pragma once
// What every command shares: global options, where results go, and how an image is opened. One file per command, no
// logic of its own.
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json_fwd.hpp>

#include "core/base/threads/cancel.h"
#include "core/index/local_index.h"
#include "core/oci/image.h"

namespace varve::cli {

// What a file or the environment says of one setting.
struct SettingOrigin {
  std::string value;       // as on a command line
  std::string place;       // "/etc/varve/varve.toml:3", "VARVE_ROOT"
  bool from_file = false;  // else from the environment
};

struct GlobalOptions {
  std::filesystem::path root;     // state: --root, $VARVE_ROOT, /var/lib/varve or ~/.local/share/varve
  std::filesystem::path run_dir;  // sockets: /run/varve or $XDG_RUNTIME_DIR/varve; under --root if that was given
  std::string platform;           // --platform; "" = this machine's
  oci::RegistryOptions registry;
  oci::CredentialProviderSettings credential_providers;
  bool json = false;
  bool quiet = false;
  int verbose = 0;
  trust::TrustSettings trust;                                // [trust] of varve.toml
  std::map<std::string, SettingOrigin, std::less<>> set_by;  // by key, "daemon.store-size"; the strongest of each
};

// Handed to every command; lives as long as the program.
struct Context {
  std::ostream& out;  // results only
  std::ostream& err;
  GlobalOptions global;
  CancelFlag cancel;    // set by SIGINT and SIGTERM
  int exit_status = 0;  // a command that finished with findings sets 3, `run` its command's status
  std::string program;  // path of this program, to start the daemon
  const char* const* argv = nullptr;
  std::vector<std::string>
      tail;  // the words after "--", for commands that start another program (`run IMAGE -- CMD...`)

  // Resolves an image as all commands do (reference, --platform, credentials).
  oci::Image open_image(const std::string& reference) const;
  // The index blobs of this root, with the settings that say which are believed.
  index::LocalIndex local_index() const;
  // One JSON document on `out`.
  void print_json(const nlohmann::json& document) const;
};

// Each command adds its subcommand to the program and runs from its callback. Help text ends with at least one example.
using AddCommand = void (*)(CLI::App& app, Context& context);
void add_index_command(CLI::App& app, Context& context);
void add_inspect_command(CLI::App& app, Context& context);
void add_ls_command(CLI::App& app, Context& context);
void add_cat_command(CLI::App& app, Context& context);
void add_packages_command(CLI::App& app, Context& context);
void add_mount_command(CLI::App& app, Context& context);
void add_unmount_command(CLI::App& app, Context& context);
void add_status_command(CLI::App& app, Context& context);
void add_pull_command(CLI::App& app, Context& context);
void add_profile_command(CLI::App& app, Context& context);
void add_prewarm_command(CLI::App& app, Context& context);
void add_verify_command(CLI::App& app, Context& context);
void add_keygen_command(CLI::App& app, Context& context);
void add_sign_command(CLI::App& app, Context& context);
void add_trust_command(CLI::App& app, Context& context);
void add_daemon_command(CLI::App& app, Context& context);
void add_snapshotter_command(CLI::App& app, Context& context);
void add_run_command(CLI::App& app, Context& context);
void add_podman_command(CLI::App& app, Context& context);
void add_session_command(CLI::App& app, Context& context);
void add_image_command(CLI::App& app, Context& context);
void add_pin_command(CLI::App& app, Context& context);
void add_prune_command(CLI::App& app, Context& context);
void add_gc_command(CLI::App& app, Context& context);
void add_usage_command(CLI::App& app, Context& context);
void add_fleet_command(CLI::App& app, Context& context);
void add_containerd_command(CLI::App& app, Context& context);
void add_webhook_command(CLI::App& app, Context& context);
void add_config_command(CLI::App& app, Context& context);

// The whole program; main() is one call of it, so that tests run it with streams of their own.
int varve_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace varve::cli
