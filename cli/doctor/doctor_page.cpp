#include "cli/doctor/doctor_page.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/base/text.h"
#include "cli/session/status_report.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/units.h"
#include "fuse/control/control_protocol.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kLogLinesShown = 10;
constexpr std::size_t kLongestLine = 240;

std::string shown(const json& value) {
  if (value.is_string()) return printable(value.get<std::string>());
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump();
}

std::string shown_list(const json& values) {
  std::vector<std::string> parts;
  for (const auto& one : values) parts.push_back(shown(one));
  return parts.empty() ? "-" : joined(parts);
}

class Page {
 public:
  explicit Page(const json& document) : document_(document) {}

  std::string write() {
    write_program();
    write_daemon();
    write_settings();
    write_registries();
    write_trust();
    write_units();
    write_logs();
    write_findings();
    return std::move(out_);
  }

 private:
  void line(std::string_view label, std::string_view value) { out_ += fmt::format("{:<13}{}\n", label, value); }
  void table(std::string_view label, const std::vector<std::vector<std::string>>& rows) {
    std::ostringstream rows_text;
    print_table(rows_text, rows);
    const auto all = rows_text.str();
    for (const auto row : split_words(all, "\n")) line(std::exchange(label, ""), row);
  }

  void write_program() {
    const auto& program = document_["program"];
    const auto& kernel = document_["kernel"];
    const auto& can = document_["can"];
    const auto& disk = document_["disk"];
    line("varve", fmt::format("{}, {}", shown(program["version"]), shown(document_["generated"])));
    line("program", fmt::format("{}, user {}", shown(program["path"]), shown(program["uid"])));
    line("root", fmt::format("{}, sockets in {}", shown(program["root"]), shown(program["run_dir"])));
    if (kernel.is_object())
      line("kernel", fmt::format("Linux {} {}, {}", shown(kernel["release"]), shown(kernel["machine"]),
                                 shown(kernel["distribution"])));
    line("can", fmt::format("erofs {}, fuse {}, overlay {}, user namespaces {}, cgroups {}, systemd {}",
                            shown(can["erofs"]), shown(can["fuse"]), shown(can["overlay"]),
                            shown(can["user_namespaces"]), shown(can["cgroups"]), shown(can["systemd"])));
    std::vector<std::string> tools;
    for (const auto& [name, version] : can["runtimes"].items())
      if (version.is_string()) tools.push_back(shown(version));
    if (can["fusermount3"].is_string()) tools.push_back(shown(can["fusermount3"]));
    line("tools", tools.empty() ? "-" : joined(tools));
    if (disk.is_object())
      line("disk", fmt::format("{} ({}): {} of {} free, {} of {} inodes", shown(disk["path"]),
                               shown(disk["file_system"]), human_bytes(disk["free_bytes"].get<std::uint64_t>()),
                               human_bytes(disk["total_bytes"].get<std::uint64_t>()), shown(disk["free_inodes"]),
                               shown(disk["total_inodes"])));
  }

  void write_daemon() {
    const auto& daemon = document_["daemon"];
    if (daemon["state"] == "runs") return write_status();
    line("daemon", daemon["state"] == "none" ? "none runs" : shown(daemon["trouble"]));
    if (const auto& process = daemon["process"]; process.is_object())
      line("", fmt::format("process {}, {}, {}", shown(process["pid"]), shown(process["state"]),
                           shown(process["program"])));
    for (const auto& mount : document_["mounts"])
      line("mounted", fmt::format("{} ({})", shown(mount["dir"]), shown(mount["type"])));
  }

  void write_status() {
    try {
      const auto status = document_["status"].get<fuse::DaemonStatus>();
      RunningSessions sessions;
      for (const auto& mount : document_["status"]["mounts"])
        for (const auto& name : mount.value("sessions", json::array()))
          sessions[mount.value("image", "")].push_back(shown(name));
      std::string label = "status";
      const auto said = status_text(status, sessions);
      for (const auto row : split_words(said, "\n")) line(std::exchange(label, ""), row);
    } catch (const std::exception&) {  // of a version that says other things
      line("status", document_["status"].dump());
    }
  }

  void write_settings() {
    std::vector<std::vector<std::string>> rows;
    for (const auto& one : document_["settings"])
      rows.push_back({shown(one["name"]), shown(one["value"]), shown(one["place"])});
    if (rows.empty()) line("settings", "all as they are by default");
    table("settings", rows);
    rows.clear();
    for (const auto& [name, value] : document_["environment"].items()) rows.push_back({printable(name), shown(value)});
    table("environment", rows);
  }

  void write_registries() {
    std::vector<std::vector<std::string>> rows;
    for (const auto& one : document_["registries"])
      rows.push_back({shown(one["host"]), one["mirror"] == true ? "mirror" : "registry", shown(one["state"]),
                      fmt::format("{} failures", shown(one["failures"]))});
    table("registries", rows);
    for (const auto& one : document_["credentials"])
      line("credentials", fmt::format("{}: {}{}", shown(one["file"]), shown_list(one["registries"]),
                                      one["helpers"].empty() ? "" : "; helpers " + shown_list(one["helpers"])));
  }

  void write_trust() {
    const auto& trust = document_["trust"];
    std::vector<std::string> keys;
    for (const auto& key : trust["keys"]) keys.push_back(key["id"].is_string() ? shown(key["id"]) : "unreadable");
    line("trust", fmt::format("{}; keys {}; {} scopes; {} denied; policy {}", shown(trust["index"]),
                              keys.empty() ? "-" : joined(keys), shown(trust["scopes"]), shown(trust["denied"]),
                              shown(trust["policy"])));
  }

  void write_units() {
    if (!document_["units"].is_array()) return;
    std::vector<std::vector<std::string>> rows;
    for (const auto& one : document_["units"])
      rows.push_back({shown(one["name"]), shown(one["state"]), shown(one["enabled"]),
                      fmt::format("restarts {}", shown(one["restarts"]))});
    table("units", rows);
  }

  void write_logs() {
    for (const auto& log : document_["log"]) {
      const auto& lines = log["lines"];
      if (lines.empty() && !log.contains("trouble")) continue;
      line("log",
           fmt::format("{}{}", shown(log["source"]), log.contains("trouble") ? ": " + shown(log["trouble"]) : ""));
      for (std::size_t i = lines.size() - std::min(lines.size(), kLogLinesShown); i < lines.size(); ++i)
        out_ += fmt::format("  {}\n", visible(lines[i].get<std::string>(), kLongestLine));
    }
  }

  void write_findings() {
    const auto& findings = document_["findings"];
    if (findings.empty()) return line("wrong", "nothing that could be seen");
    out_ += "\nWhat looks wrong:\n";
    for (const auto& one : findings)
      out_ += fmt::format("- {}\n  {}\n", message_text(one["what"].get<std::string>()), shown(one["next"]));
  }

  const json& document_;
  std::string out_;
};

}  // namespace

std::string doctor_page(const nlohmann::json& document) { return Page(document).write(); }

}  // namespace varve::cli
