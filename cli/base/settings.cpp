#include "cli/base/settings.h"

#include <algorithm>
#include <sstream>

#include <CLI/Option.hpp>

#include "cli/manual.h"
#include "core/base/errors.h"
#include "core/base/text/nearest.h"
#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

constexpr Setting kSettings[] = {
    {"root", "\"/srv/varve\"", "VARVE_ROOT", "/var/lib/varve as root, ~/.local/share/varve otherwise"},
    {"platform", "\"linux/arm64\"", {}, "this machine's"},
    {"authfile", "\"/etc/varve/auth.json\"", {}, "where podman and docker keep theirs, then /etc/varve/auth.json"},
    {"credential-provider-config", "\"/etc/kubernetes/credential-provider-config.yaml\""},
    {"credential-provider-bin-dir", "\"/opt/bin/credential-providers\""},
    {"ca-file", "\"/etc/varve/ca.pem\"", {}, "the system's authorities"},
    {"plain-http", "true"},
    {"index-from", "[\"registry.example/team/indexes\"]"},
    {"hosts-dir", "[\"/etc/containerd/certs.d\"]", {}, "containerd's and docker's"},
    {"registries-conf", "\"/etc/containers/registries.conf\"", {}, "where podman has it"},
    {"no-mirrors", "true"},
    {"mirror",
     "[{ prefix = \"registry.example\", location = [\"http://cache.example:8081\"] }]",
     {},
     {},
     "`[[mirror]]`: where else to read what begins with prefix, in order, whatever those files say; resolve = true: "
     "tags too; upstream = false: only there"},
    {"quiet", "true"},
    {"verbose", "1", {}, "0"},
    {"index.jobs", "4"},
    {"index.sign", "\"/etc/varve/keys/ci.key\""},
    {"mount.mode", "\"fuse\""},
    {"mount.no-prefetch", "true"},
    {"mount.fill", "true"},
    {"mount.index-here", "true"},
    {"pull.index-here", "true"},
    {"run.runtime", "\"crun\""},
    {"run.mode", "\"fuse\""},
    {"run.network", "\"none\""},
    {"run.userns", "\"host\""},
    {"run.userns-ids", "\"2000000000:65536\""},
    {"run.gpus", "\"all\""},
    {"run.cdi-spec-dir", "[\"/etc/cdi\", \"/opt/cdi\"]"},
    {"run.env", "[\"HF_HOME=/models\"]"},
    {"run.volume", "[\"/srv/models:/models:ro\"]"},
    {"run.memory", "\"8GB\""},
    {"run.cpus", "4"},
    {"run.pids-limit", "4096"},
    {"run.shm-size", "\"1GB\""},
    {"run.limits", "\"best-effort\""},
    {"run.tmpfs", "[\"/scratch\"]"},
    {"run.env-file", "[\"/etc/varve/session.env\"]"},
    {"run.read-only", "true"},
    {"run.no-prefetch", "true"},
    {"run.fill", "true"},
    {"run.index-here", "true"},
    {"run.record", "true"},
    {"run.usage-spool", "\"/srv/spool\"", {}, "usage/spool under the root"},
    {"daemon.store-size", "\"200GB\""},
    {"daemon.evict-idle", "60"},
    {"daemon.keep-mounted", "3600"},
    {"daemon.fill", "true"},
    {"daemon.deadline", "60"},
    {"daemon.connections", "16"},
    {"daemon.threads", "8"},
    {"daemon.read-ahead", "512"},
    {"daemon.idle-exit", "600"},
    {"daemon.max-restarts", "3"},
    {"daemon.metrics", "\"127.0.0.1:9471\"", {}, "off"},
    {"snapshotter.address", "\"/run/varve/snapshotter.sock\"", {}, "snapshotter.sock beside the daemon's socket"},
    {"snapshotter.group", "\"containerd\""},
    {"snapshotter.mode", "\"kernel\""},
    {"snapshotter.metrics", "\"127.0.0.1:9473\""},
    {"image.optimize.format", "\"gzip\""},
    {"image.optimize.level", "9"},
    {"gc.grace", "48"},
    {"prune.plan.usage", "\"/srv/usage.db\""},
    {"prune.plan.keep", "[\"/etc/varve/keep.toml\"]"},
    {"usage.collect.db", "\"/srv/usage.db\""},
    {"usage.collect.raw-days", "30"},
    {"usage.collect.aggregate-days", "730"},
    {"usage.report.db", "\"/srv/usage.db\""},
    {"usage.report.window", "\"26w\""},
    {"usage.explain.db", "\"/srv/usage.db\""},
    {"gpu-check.image", "\"registry.example/team/notebook:v1\""},
    {"gpu-check.gpus", "\"1\""},
    {"gpu-check.history", "\"/srv/gpu-history.db\""},
    {"trust.index", "\"signed\"", {}, "policy", "Which indexes are believed: signed, policy, pinned or any"},
    {"trust.keys", "[\"keys/ci.pub\"]", {}, {}, "Files of public keys, any of which may have signed"},
    {"trust.deny",
     "[\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"]",
     {},
     {},
     "Digests of indexes that never count"},
    {"trust.min-tool", "\"0.4.2\"", {}, {}, "What an older Varve made does not count"},
    {"trust.policy", "\"policy.json\"", {}, "where podman has it", "A policy.json of containers"},
    {"trust.scope",
     "[{ prefix = \"registry.example/team\", keys = [\"keys/team.pub\"] }]",
     {},
     {},
     "What holds in some repositories instead: prefix, and keys, index or both"},
};

// Variables that are no settings of a file, or belong to other programs.
constexpr std::pair<const char*, const char*> kVariables[] = {
    {"VARVE_CONFIG", "the one file to read, in place of both"},
    {"REGISTRY_AUTH_FILE, DOCKER_CONFIG", "credentials of registries, as podman and docker take them"},
    {"COSIGN_PASSWORD", "of a private key, for `varve index --sign`, `sign` and `keygen`"},
    {"XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_RUNTIME_DIR", "where a plain user's state, settings and sockets lie"},
};

constexpr std::string_view kIntroduction =
    "# Settings\n\n"
    "Made by `varve config --markdown`. Of `/etc/varve/varve.toml`, the user's `~/.config/varve/varve.toml`, the\n"
    "environment and the options of a command the later wins. `varve config` shows what holds, and from where; a\n"
    "key that is none is an error with file, line and the nearest one. A daemon has the settings it was started with.\n\n"
    "A key is the name of an option, and stands in the table of its command: `store-size` in `[daemon]` is `varve\n"
    "daemon --store-size`. So any option can be set; these are the ones that people set.\n"
    "`share/doc/varve/varve.toml.example` has them all, to be uncommented.\n";

std::string_view table_of(std::string_view key) {
  return key.substr(0, key.rfind('.') == key.npos ? 0 : key.rfind('.'));
}
std::string_view name_in_table(std::string_view key) { return key.substr(key.rfind('.') + 1); }

bool is_flag(const CLI::Option& option) { return !takes_value(option); }

// Lists without the brackets that CLI11 puts around them.
std::string shown_default(const CLI::Option& option) {
  const auto text = option.get_default_str();
  if (!text.starts_with('[') || !text.ends_with(']')) return text;
  std::vector<std::string> parts;
  for (const auto part : split(std::string_view(text).substr(1, text.size() - 2), ",")) parts.emplace_back(part);
  return joined(parts);
}

std::string help_of(const CLI::App& app, const Setting& setting) {
  const auto* option = option_of(app, setting.key);
  return option == nullptr ? std::string(setting.meaning) : option->get_description();
}

std::string default_of(const CLI::App& app, const Setting& setting) {
  const auto* option = option_of(app, setting.key);
  if (!setting.standard.empty() || option == nullptr) return std::string(setting.standard);
  return is_flag(*option) ? "false" : shown_default(*option);
}

const Setting* find_setting(std::string_view key) {
  const auto found = std::ranges::find(kSettings, key, &Setting::key);
  return found == std::end(kSettings) ? nullptr : found;
}

std::vector<std::string> all_keys(const CLI::App& app) {
  std::vector<std::string> keys;
  for (const auto& setting : kSettings) keys.emplace_back(setting.key);
  auto commands = command_names(app);
  commands.emplace_back();
  for (const auto& words : commands)
    for (const auto* option : find_command(app, words)->get_options([](const CLI::Option* one) {
           return is_setting(*one) && !one->get_group().empty();
         })) {
      auto parts = words;
      parts.push_back(option->get_lnames().front());
      keys.push_back(joined(parts, "."));
    }
  return keys;
}

void hold_default(const CLI::App& app, const GlobalOptions& global, const CLI::Option* option, HeldSetting& held) {
  held.from = "default";
  const auto* setting = find_setting(held.key);
  if (held.key == "root")
    held.value = global.root.string();
  else if (option != nullptr && is_flag(*option))
    held.value = held.key == "verbose" ? "0" : "false";
  else if (option != nullptr && !option->get_default_str().empty())
    held.value = shown_default(*option);
  else if (option == nullptr && setting != nullptr && held.key == "trust.index")
    held.value = default_of(app, *setting);
}

}  // namespace

std::span<const Setting> settings() { return kSettings; }

bool is_setting(const CLI::Option& option) {
  if (option.get_lnames().empty()) return false;
  const auto& name = option.get_lnames().front();
  return name != "help" && name != "version";
}

CLI::Option* option_of(CLI::App& app, std::string_view key) {
  return const_cast<CLI::Option*>(option_of(std::as_const(app), key));
}

const CLI::Option* option_of(const CLI::App& app, std::string_view key) {
  std::vector<std::string> words;
  if (const auto table = table_of(key); !table.empty())
    for (const auto word : split(table, ".")) words.emplace_back(word);
  const auto* command = find_command(app, words);
  if (command == nullptr) return nullptr;
  const auto* option = command->get_option_no_throw(fmt::format("--{}", name_in_table(key)));
  return option != nullptr && is_setting(*option) ? option : nullptr;
}

HeldSetting held_setting(const CLI::App& app, const GlobalOptions& global, const std::string& key) {
  const auto* option = option_of(app, key);
  if (option == nullptr && find_setting(key) == nullptr)
    fail<UsageError>("there is no setting '{}'{} (`varve config` lists them)", key,
                     did_you_mean(key, all_keys(app), 3));
  HeldSetting held{.key = key, .value = {}, .from = {}, .place = {}, .is_flag = option != nullptr && is_flag(*option)};
  if (option != nullptr && option->count() > 0) {
    held.from = "flag";
    held.place = fmt::format("--{}", name_in_table(key));
    held.value = joined(option->reduced_results());
  } else if (const auto found = global.set_by.find(key); found != global.set_by.end()) {
    held.from = found->second.from_file ? "file" : "environment";
    held.place = found->second.place;
    held.value = found->second.value;
  } else {
    hold_default(app, global, option, held);
  }
  return held;
}

std::vector<HeldSetting> held_settings(const CLI::App& app, const GlobalOptions& global) {
  std::vector<HeldSetting> held;
  for (const auto& setting : kSettings) held.push_back(held_setting(app, global, std::string(setting.key)));
  for (const auto& [key, origin] : global.set_by)
    if (find_setting(key) == nullptr) held.push_back(held_setting(app, global, key));
  return held;
}

std::string settings_page(const CLI::App& app) {
  std::ostringstream page;
  page << kIntroduction;
  std::string_view table = "none yet";
  for (const auto& setting : kSettings) {
    if (table != table_of(setting.key)) {
      table = table_of(setting.key);
      page << (table.empty() ? "\n## For every command\n\n" : fmt::format("\n## [{}]\n\n", table));
      if (table == "trust") page << "What each means: [who is believed](trust.md#set-it-up).\n\n";
      page << "| key | default | |\n|---|---|---|\n";
    }
    auto meaning = help_of(app, setting);
    std::ranges::replace(meaning, '|', '/');
    const auto standard = default_of(app, setting);
    page << fmt::format("| `{}` | {} | {} |\n", name_in_table(setting.key), standard.empty() ? "-" : standard, meaning);
  }
  page << "\n## In the environment\n\n| variable | |\n|---|---|\n";
  for (const auto& setting : kSettings)
    if (!setting.variable.empty()) page << fmt::format("| {} | `{}` |\n", setting.variable, setting.key);
  for (const auto& [names, meaning] : kVariables) page << fmt::format("| {} | {} |\n", names, meaning);
  return page.str();
}

std::string settings_example(const CLI::App& app) {
  std::ostringstream file;
  file << "# Settings of Varve: /etc/varve/varve.toml for the machine, ~/.config/varve/varve.toml for a user.\n"
          "# Take the # away from what is to hold. `varve config` shows what holds, and from where.\n";
  std::string_view table;
  for (const auto& setting : kSettings) {
    if (table != table_of(setting.key)) {
      table = table_of(setting.key);
      file << fmt::format("\n[{}]\n", table);
    }
    const auto standard = default_of(app, setting);
    file << fmt::format("\n# {}.{}\n# {} = {}\n", help_of(app, setting),
                        standard.empty() ? "" : fmt::format(" Default: {}.", standard), name_in_table(setting.key),
                        setting.example);
  }
  return file.str();
}

}  // namespace varve::cli
