#include "cli/doctor/doctor_command.h"

#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/settings.h"
#include "cli/doctor/doctor_page.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/machine_facts.h"
#include "cli/doctor/secret_filter.h"
#include "cli/session/daemon_access.h"
#include "core/base/error_text.h"
#include "core/base/process/child_process.h"
#include "core/base/text/calendar.h"
#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

using nlohmann::json;

struct DoctorArguments {
  unsigned patience_seconds = 5;
};

// Asked by a child, since a daemon that hangs would hang this process; it may hold the store's disk up, too.
void examine_daemon(const Context& context, unsigned patience_seconds, json& document) {
  auto& daemon = document["daemon"] = {{"state", "none"}, {"trouble", ""}, {"process", nullptr}};
  document["status"] = nullptr;
  const auto paths = daemon_paths(context);
  try {
    ChildProgram program;
    program.words = {context.program, "--root", paths.root.string(), "--json", "status"};
    program.limit = std::chrono::seconds(patience_seconds);
    const auto done = run_child(program, context.cancel);
    if (done.timed_out) {
      daemon["state"] = "silent";
      daemon["trouble"] = fmt::format("no answer within {} s", patience_seconds);
    } else if (done.exit_status != 0) {
      daemon["state"] = "silent";
      daemon["trouble"] = std::string(last_line(done.err));
    } else {
      document["status"] = json::parse(done.out);
      if (document["status"]["daemon"].is_object()) daemon["state"] = "runs";
    }
  } catch (const json::exception& error) {
    daemon["trouble"] = fmt::format("its answer is no JSON: {}", error.what());
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& error) {
    daemon["trouble"] = error_text(error);
  }
  if (daemon["state"] != "runs") daemon["process"] = lock_holder(paths.root / "daemon.lock");
}

// Of all that is mounted, each host once.
json registries_of(const json& status) {
  std::map<std::string, json> by_host;
  if (status.is_object())
    for (const auto& mount : status["mounts"])
      for (const auto& source : mount.value("sources", json::array())) {
        auto& one = by_host[source["host"].get<std::string>()];
        if (one.is_null()) {
          one = source;
          continue;
        }
        for (const char* count : {"failures", "wrong", "bytes"})
          one[count] = one[count].get<std::uint64_t>() + source[count].get<std::uint64_t>();
        if (source["state"] != "good") one["state"] = source["state"];
        if (source["last_error"] != "") one["last_error"] = source["last_error"];
      }
  auto list = json::array();
  for (auto& [host, one] : by_host) list.push_back(std::move(one));
  return list;
}

// What somebody has set. Of variables for sessions only the names: their values are anybody's.
json set_settings(const CLI::App& app, const GlobalOptions& global) {
  auto list = json::array();
  for (const auto& held : held_settings(app, global)) {
    if (held.from == "default") continue;
    auto value = held.value ? json(*held.value) : json();
    if (held.key.ends_with(".env") && held.value) {
      std::vector<std::string> names;
      for (const auto part : split(*held.value, ","))
        names.push_back(fmt::format("{}={}", varve::trimmed(part.substr(0, part.find('='))), kMasked));
      value = joined(names);
    }
    list.push_back({{"name", held.key}, {"value", std::move(value)}, {"from", held.from}, {"place", held.place}});
  }
  return list;
}

// What this machine's own files and variables hold, so that it is known wherever it turns up.
SecretFilter filter_of(const std::vector<oci::CredentialFile>& files) {
  SecretFilter filter;
  for (const auto& file : files)
    for (const auto& secret : file.secrets) filter.add(secret);
  for (const auto& variable : own_environment())
    if (const auto equals = variable.find('='); equals != variable.npos && names_a_secret(variable.substr(0, equals)))
      filter.add(std::string_view(variable).substr(equals + 1));
  return filter;
}

json examine(const CLI::App& app, const Context& context, const DoctorArguments& arguments) {
  const auto paths = daemon_paths(context);
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const auto credentials = oci::find_credential_files(context.global.registry.authfile);
  json document{{"generated", rfc3339(now)},
                {"program",
                 {{"version", VARVE_VERSION},
                  {"path", context.program},
                  {"uid", ::geteuid()},
                  {"root", paths.root.string()},
                  {"run_dir", paths.run_dir.string()}}},
                {"kernel", kernel_facts()},
                {"can", ability_facts(context.cancel)},
                {"disk", disk_facts(paths.root)},
                {"mounts", mount_facts(paths)},
                {"settings", set_settings(app, context.global)},
                {"environment", environment_facts()},
                {"credentials", credential_facts(credentials)},
                {"trust", trust_facts(context.global.trust)},
                {"units", unit_facts(context.cancel)}};
  examine_daemon(context, arguments.patience_seconds, document);
  document["registries"] = registries_of(document["status"]);
  document["log"] = log_facts(paths.log_file(), document["can"]["systemd"] == true, context.cancel);
  document["findings"] = find_faults(document);
  return filter_of(credentials).document(document);
}

void run_doctor(const CLI::App& app, Context& context, const DoctorArguments& arguments) {
  const auto document = examine(app, context, arguments);
  if (!document["findings"].empty()) context.exit_status = 3;
  if (context.global.json) return context.print_json(document);
  context.out << doctor_page(document);
}

}  // namespace

void add_doctor_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<DoctorArguments>();
  auto* command = app.add_subcommand(
      "doctor", "Prints one page about this machine and its daemon for a bug report, without secrets; changes nothing");
  command->add_option("--patience", arguments->patience_seconds, "Seconds that the daemon has to answer")
      ->check(CLI::Range(1u, 600u))
      ->capture_default_str();
  command->footer(
      "Examples:\n  varve doctor\n  varve doctor --json > report.json\n\n"
      "Passwords, tokens, keys, the user part and the query of URLs and what credential files hold become ***.\n"
      "Names of registries, images, sessions and folders are not: read it before you pass it on.\n"
      "Status 3: something looks wrong; it says what, and what to do next.");
  command->callback([&app, &context, arguments] { run_doctor(app, context, *arguments); });
}

}  // namespace varve::cli
