#include <unistd.h>

#include <algorithm>
#include <ostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/base/config.h"
#include "cli/base/signals.h"
#include "cli/base/usage_errors.h"
#include "cli/command.h"
#include "cli/doctor/doctor_command.h"
#include "cli/gpu/gpu_check_command.h"
#include "cli/help_command.h"
#include "cli/image/image_command.h"
#include "cli/manual.h"
#include "core/base/error_text.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/journal.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"

namespace varve::cli {
namespace {

struct Command {
  std::string_view name;
  AddCommand add;
  bool speaks_of_all = false;  // looks at all others
};
// In the order of the help text. A command is added here and, with its file, in CMakeLists.txt.
constexpr Command kCommands[] = {
    {"index", add_index_command},
    {"inspect", add_inspect_command},
    {"ls", add_ls_command},
    {"cat", add_cat_command},
    {"packages", add_packages_command},
    {"mount", add_mount_command},
    {"unmount", add_unmount_command},
    {"status", add_status_command},
    {"pull", add_pull_command},
    {"profile", add_profile_command},
    {"prewarm", add_prewarm_command},
    {"verify", add_verify_command},
    {"keygen", add_keygen_command},
    {"sign", add_sign_command},
    {"trust", add_trust_command},
    {"daemon", add_daemon_command},
    {"snapshotter", add_snapshotter_command},
    {"run", add_run_command},
    {"session", add_session_command},
    {"image", add_image_command},
    {"pin", add_pin_command},
    {"prune", add_prune_command},
    {"gc", add_gc_command},
    {"usage", add_usage_command},
    {"fleet", add_fleet_command},
    {"gpu-check", add_gpu_check_command},
    {"images", add_images_command},
    {"containerd", add_containerd_command},
    {"podman", add_podman_command},
    {"webhook", add_webhook_command},
    {"config", add_config_command, true},
    {"doctor", add_doctor_command, true},
    {"help", add_help_commands, true},
    {"man", add_help_commands, true},
    {"completion", add_help_commands, true},
};

// The commands are added when somebody looks for them: all with their options take a third of a program's start.
class Commands {
 public:
  Commands(CLI::App& app, Context& context) : app_(app), context_(context) {}

  // The one of that name. All, if there is none, or if it looks at all others.
  void add(std::string_view name) {
    const auto found = std::ranges::find(kCommands, name, &Command::name);
    if (found != std::end(kCommands) && !found->speaks_of_all) return add_one(*found);
    for (const auto& command : kCommands) add_one(command);
  }

 private:
  void add_one(const Command& command) {
    if (find_command(app_, {std::string(command.name)}) == nullptr) command.add(app_, context_);
  }

  CLI::App& app_;
  Context& context_;
};

// Commands with the command line of another program, which must reach it untouched: all that stands after "--", or for
// some already behind what they work on.
struct TakesCommandLine {
  std::string_view command;
  bool behind_subject = false;
};
constexpr TakesCommandLine kTakesCommandLine[] = {{"run", true},      {"session exec", true}, {"usage recorder show"},
                                                  {"profile record"}, {"profile learn"},      {"webhook"}};

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(26); }
  std::string make_footer(const CLI::App* app) const override {
    auto footer = CLI::Formatter::make_footer(app);
    if (app->get_parent() != nullptr) footer += "\nOptions that all commands share: varve --help\n";
    return footer;
  }
};

// What `check` throws is what is wrong with an option's value.
template <typename Check>
std::function<std::string(const std::string&)> refusal_of(Check check) {
  return [check](const std::string& value) -> std::string {
    try {
      check(value);
      return {};
    } catch (const std::exception& error) {
      return error.what();
    }
  };
}

void check_readable(const std::string& file) { open_file(file, O_RDONLY); }

void add_global_options(CLI::App& app, GlobalOptions& global, std::string& root) {
  app.add_option("--root", root, "Where state lives (environment: VARVE_ROOT)")->type_name("DIR");
  app.add_option("--platform", global.platform, "Which image of a multi-platform list: os/arch[/variant]")
      ->type_name("PLATFORM")
      ->check(refusal_of([](const std::string& text) { oci::Platform::parse(text); }));
  app.add_option("--index-from", global.registry.index_from,
                 "Look for indexes of images in this repository or layout folder too (`index --to`); may be said again")
      ->type_name("REF")
      ->allow_extra_args(false)
      ->check(refusal_of([](const std::string& text) { oci::Reference::parse(text); }));
  app.add_option("--authfile", global.registry.authfile, "Registry credentials, as podman and docker write them")
      ->type_name("FILE")
      ->check(refusal_of(check_readable));
  app.add_option("--credential-provider-config", global.credential_providers.config,
                 "Ask the kubelet's credential provider plugins where no file knows a registry: its file of that name "
                 "(the daemon takes this from varve.toml)")
      ->type_name("FILE");
  app.add_option("--credential-provider-bin-dir", global.credential_providers.bin_dir,
                 "Where these plugins lie, as the kubelet is told")
      ->type_name("DIR");
  app.add_flag("--plain-http", global.registry.plain_http, "Talk HTTP, not HTTPS, to registries (loopback may always)");
  app.add_option("--ca-file", global.registry.ca_file, "Certificates of a private authority, PEM")
      ->type_name("FILE")
      ->check(refusal_of(check_readable));
  auto& mirrors = global.registry.mirrors;
  app.add_option("--hosts-dir", mirrors.hosts_dirs,
                 "Read mirrors of registries from HOST/hosts.toml below DIR, as containerd does (default: "
                 "/etc/containerd/certs.d, /etc/docker/certs.d); may be said again")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.add_option("--registries-conf", mirrors.registries_conf,
                 "Read mirrors of registries from FILE and FILE.d, as podman does (default: where podman has it)")
      ->type_name("FILE")
      ->check(refusal_of(check_readable));
  app.add_flag("--no-mirrors", mirrors.off, "Ask registries themselves, whatever those files say");
  app.add_flag("--json", global.json, "Print one JSON document on standard output");
  app.add_flag("--quiet", global.quiet, "Only errors on standard error");
  app.add_flag("-v,--verbose", global.verbose, "Say more on standard error; twice for debugging");
  app.set_version_flag("--version", "varve " VARVE_VERSION);
}

bool is_option(std::string_view word) { return word.size() > 1 && word.starts_with('-') && word != "--"; }

// By its own name; of the command or of those that it is part of. Null if there is none.
const CLI::Option* find_option(const CLI::App* command, const std::string& name) {
  for (; command != nullptr; command = command->get_parent())
    if (const auto* option = command->get_option_no_throw(name)) return option;
  return nullptr;
}

struct OptionWord {
  bool known = false;
  bool takes_next = false;  // its value is the next word
};

OptionWord read_option(const CLI::App& command, const std::string& word) {
  const auto takes_value = [](const CLI::Option& option) { return option.get_items_expected_max() > 0; };
  if (word.starts_with("--")) {
    const auto equals = word.find('=');
    const auto* option = find_option(&command, word.substr(0, equals));
    return {.known = option != nullptr, .takes_next = option != nullptr && equals == word.npos && takes_value(*option)};
  }
  for (std::size_t i = 1; i < word.size(); ++i) {  // "-dv": letters of flags, the last perhaps of another
    const auto* option = find_option(&command, {'-', word[i]});
    if (option == nullptr) return {};
    if (takes_value(*option)) return {.known = true, .takes_next = i + 1 == word.size()};
  }
  return {.known = true, .takes_next = false};
}

// The command that the words name; "" if they name none.
std::string named_command(const CLI::App& app, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (!is_option(words[i])) return words[i];
    if (read_option(app, words[i]).takes_next) ++i;
  }
  return {};
}

// Whether all these words are options of the command and their values.
bool are_options(const CLI::App& command, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto option = is_option(words[i]) ? read_option(command, words[i]) : OptionWord();
    if (!option.known) return false;
    if (option.takes_next) ++i;
  }
  return true;
}

// Where the words of another program begin: behind the image or session, as container engines have it, or at "--". Also
// when options stand between an image and a "--": only Varve's own, else they are that program's.
std::size_t tail_begin(const CLI::App& command, const std::vector<std::string>& words, std::size_t behind_subject) {
  if (behind_subject == words.size() || !is_option(words[behind_subject])) return behind_subject;
  const auto from = words.begin() + std::ptrdiff_t(behind_subject);
  const auto dashes = std::find(from, words.end(), "--");
  const bool ours = dashes != words.end() && are_options(command, {from, dashes});
  return ours ? std::size_t(dashes - words.begin()) : behind_subject;
}

// Takes the words away that commands hand on: CLI11 would split words such as "[1,2]".
std::vector<std::string> take_tail(const CLI::App& app, std::vector<std::string>& words) {
  const auto* command = &app;
  std::string name;
  const TakesCommandLine* taker = nullptr;
  bool has_subject = false;  // in place of an image, for one
  std::size_t begin = words.size();
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (is_option(words[i])) {
      has_subject = has_subject || words[i].substr(0, words[i].find('=')) == "--rootfs";
      if (read_option(*command, words[i]).takes_next) ++i;
    } else if (const auto* sub = find_command(*command, {words[i]}); sub != nullptr && taker == nullptr) {
      command = sub;
      name += (name.empty() ? "" : " ") + words[i];
      const auto found = std::ranges::find(kTakesCommandLine, name, &TakesCommandLine::command);
      if (found != std::end(kTakesCommandLine)) taker = &*found;
    } else if (taker != nullptr && taker->behind_subject && !has_subject) {
      begin = tail_begin(*command, words, i + 1);
      break;
    }
  }
  if (taker == nullptr) return {};
  if (begin == words.size()) begin = std::size_t(std::ranges::find(words, "--") - words.begin());
  const bool dashes = begin < words.size() && words[begin] == "--";
  std::vector<std::string> tail(words.begin() + std::ptrdiff_t(begin + (dashes ? 1 : 0)), words.end());
  words.erase(words.begin() + std::ptrdiff_t(begin), words.end());
  return tail;
}

void settle_folders(GlobalOptions& global, const std::string& root) {
  const auto environment = process_environment();
  const bool is_root = ::geteuid() == 0;
  global.root = root.empty() ? default_root(environment, is_root) : std::filesystem::absolute(root).lexically_normal();
  if (!global.root.has_filename()) global.root = global.root.parent_path();
  global.run_dir = default_run_dir(environment, is_root, global.root);
}

void settle_credential_providers(GlobalOptions& global) {
  const auto& [config, bin_dir] = global.credential_providers;
  if (config.empty() != bin_dir.empty())
    throw UsageError("credential-provider-config and credential-provider-bin-dir need each other");
  if (!config.empty())
    global.registry.credential_providers = oci::open_credential_providers(global.credential_providers);
}

void settle_log(const GlobalOptions& global) {
  log::use_journal_if_there();
  if (global.quiet) return log::set_level(log::Level::kError);
  log::set_level(global.verbose >= 2   ? log::Level::kDebug
                 : global.verbose == 1 ? log::Level::kInfo
                                       : log::Level::kWarn);
}

// Runs the callback of the command that was named.
int parse_and_run(CLI::App& app, Commands& commands, Context& context, const std::vector<std::string>& words) {
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
  } catch (const CLI::Success& success) {                               // --help, --version
    return app.exit(success, context.out, context.err);
  } catch (const CLI::ParseError& error) {
    commands.add("");  // it may be meant for another
    context.err << "varve: error: " << explain_usage(app, words, error) << '\n';
    return 2;
  }
  return context.exit_status;
}

// As shells do it, a command that a signal ended has the status 128 + its number.
int report(std::ostream& err, const std::exception& error, int signal) {
  err << "varve: error: " << message_text(error_text(error)) << '\n';
  return signal != 0 ? 128 + signal : exit_status_for(error);
}

int run_program(Context& context, int argc, const char* const* argv) {
  CLI::App app("Makes container images randomly accessible and mounts them lazily", "varve");
  std::string root;
  app.formatter(std::make_shared<HelpFormatter>());
  app.fallthrough();  // global options may follow the command
  app.require_subcommand(1);
  app.footer(
      "Example:\n  varve index oci:image:latest && varve run oci:image:latest -- python3\n\n"
      "`varve help COMMAND` says more.");
  add_global_options(app, context.global, root);
  // Runs when all words are parsed and before the callback of the command.
  app.parse_complete_callback([&] {
    settle_folders(context.global, root);
    settle_log(context.global);
    settle_credential_providers(context.global);
  });
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  Commands commands(app, context);
  const auto add = [&](std::string_view name) { commands.add(name); };
  add(named_command(app, words));
  const auto environment = process_environment();
  for (const auto& file : config_files(environment)) apply_config_file(file, app, context.global, add);
  apply_environment(environment, app, context.global);

  context.tail = take_tail(app, words);
  const int status = parse_and_run(app, commands, context, words);
  context.out.flush();
  if (!context.out) throw TemporaryError("write standard output: the result could not be written whole");
  return status;
}

// Where it was executed from a place without a name (own_program.h), the first word is its path.
std::string path_of_this_program(const std::string& first_word) {
  std::error_code error;
  const auto link = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return first_word;
  const bool is_named = std::filesystem::equivalent(link, "/proc/self/exe", error);
  return is_named || !first_word.starts_with('/') ? link.string() : first_word;
}

}  // namespace

void Context::print_json(const nlohmann::json& document) const {
  out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

int varve_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  Context context{.out = out,
                  .err = err,
                  .global = {},
                  .cancel = {},
                  .exit_status = 0,
                  .program = path_of_this_program(argc > 0 ? argv[0] : ""),
                  .argv = argv,
                  .tail = {}};
  context.global.registry.cancel = &context.cancel;
  const CancelOnSignals signals(context.cancel);
  try {
    return run_program(context, argc, argv);
  } catch (const std::exception& error) {
    return report(err, error, signals.received());
  }
}

}  // namespace varve::cli
