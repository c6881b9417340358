#include "cli/doctor/findings.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "core/base/text/units.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLittleSpace = 1'000'000'000;
constexpr std::uint64_t kFewPercent = 3;  // of a disk's bytes or inodes

class Findings {
 public:
  explicit Findings(const json& document) : document_(document) {}

  json find() {
    look_at_daemon();
    look_at_mounts();
    look_at_registries();
    look_at_disk();
    look_at_machine();
    look_at_files();
    return std::move(found_);
  }

 private:
  template <typename... Args>
  void add(std::string next, fmt::format_string<Args...> format, Args&&... args) {
    found_.push_back({{"what", fmt::format(format, std::forward<Args>(args)...)}, {"next", std::move(next)}});
  }

  static std::string text(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

  bool is_root() const { return document_["program"]["uid"] == 0; }

  void look_at_daemon() {
    const auto& daemon = document_["daemon"];
    const auto state = text(daemon["state"]);
    if (state == "silent") {
      const auto& process = daemon["process"];
      const auto who = process.is_object()
                           ? fmt::format("process {}, {}", process["pid"].get<std::int64_t>(), text(process["state"]))
                           : "its process is not known";
      add("If it is stopped (T): kill -CONT PID. If it is stuck: kill -9 PID, and the next daemon goes on with "
          "its mounts (man varve-daemon).",
          "the daemon does not answer ({}): {}", who, text(daemon["trouble"]));
    }
    if (state == "none" && daemon["process"].is_object())
      add("Look at its log; `varve status` again in a minute.", "process {} holds the root's lock and serves nobody",
          daemon["process"]["pid"].get<std::int64_t>());
    if (state != "runs") return;
    const auto& process = document_["status"]["daemon"];
    if (process["version"] != document_["program"]["version"])
      add("`systemctl reload varve`, or `varve daemon --replace`: mounts and sessions go on.",
          "the daemon is of version {}, this program of {}", text(process["version"]),
          text(document_["program"]["version"]));
    if (process["keeper"] == "none")
      add("Its log says why; restart it when nothing is mounted.", "nothing keeps the daemon's mounts if it dies");
  }

  void look_at_mounts() {
    const auto& status = document_["status"];
    if (document_["daemon"]["state"] == "runs") {
      for (const auto& mount : status["mounts"]) look_at_mount(mount);
      for (const auto& pull : status["pulls"])
        if (!text(pull["error"]).empty())
          add("`varve pull` goes on with it.", "the pull of {} failed: {}", text(pull["reference"]),
              text(pull["error"]));
    }
    if (document_["daemon"]["state"] != "none") return;
    for (const auto& mount : document_["mounts"])
      if (mount["type"] == "fuse.varve" || mount["type"] == "erofs")
        add("The next daemon cleans it up: `varve mount`, `varve run`, or `systemctl start varve`.",
            "{} is still mounted, and no daemon serves it: whoever reads it waits or gets an error",
            text(mount["dir"]));
  }

  void look_at_mount(const json& mount) {
    const auto reference = text(mount["reference"]);
    if (mount["errors"] > 0)
      add("`varve verify IMAGE` if the store is damaged; else see the registry below.",
          "{} reads of {} failed, the last one: {}", mount["errors"].get<std::uint64_t>(), reference,
          text(mount["last_error"]));
    if (mount["waiting_seconds"] >= 10)
      add("See whether the registry answers: `varve inspect IMAGE`.", "a reader of {} waits for {} since {:.0f} s",
          reference, text(mount["waiting_for"]), mount["waiting_seconds"].get<double>());
  }

  void look_at_registries() {
    for (const auto& one : document_["registries"])
      if (one["state"] != "good" || one["wrong"] > 0)
        add("It is asked again by itself. `varve inspect IMAGE` asks it now; -vv says what it answers.",
            "{} {} is {}: {} requests failed, {} with wrong bytes; the last: {}",
            one["mirror"] == true ? "mirror" : "registry", text(one["host"]), text(one["state"]),
            one["failures"].get<std::uint64_t>(), one["wrong"].get<std::uint64_t>(), text(one["last_error"]));
  }

  void look_at_disk() {
    const auto& disk = document_["disk"];
    if (!disk.is_object()) return add("Is the root's disk mounted?", "the root's file system does not answer");
    const auto free = disk["free_bytes"].get<std::uint64_t>(), total = disk["total_bytes"].get<std::uint64_t>();
    if (free < kLittleSpace || free < total / 100 * kFewPercent)
      add("Limit the store (store-size under [daemon] in varve.toml), or take images out: `varve images rm`. Sessions "
          "need room for their files.",
          "{} has {} of {} left", text(disk["path"]), human_bytes(free), human_bytes(total));
    const auto inodes = disk["total_inodes"].get<std::uint64_t>();
    if (inodes > 0 && disk["free_inodes"].get<std::uint64_t>() < inodes / 100 * kFewPercent)
      add("Remove files, or `varve session rm` what is not needed.", "{} has {} inodes left of {}", text(disk["path"]),
          disk["free_inodes"].get<std::uint64_t>(), inodes);
  }

  void look_at_machine() {
    const auto& can = document_["can"];
    if (can["fuse"] != true)
      add(is_root() ? "modprobe fuse; in a container: give it /dev/fuse." : "Ask for rights on /dev/fuse.",
          "/dev/fuse cannot be opened: nothing can be mounted lazily");
    if (!is_root() && !can["fusermount3"].is_string())
      add("Install the package fuse3.", "there is no fusermount3, by which a plain user mounts");
    if (!is_root() && can["user_namespaces"] != true)
      add("The administrator may allow them.", "this user has no user namespaces, which sessions need: {}",
          text(can["user_namespaces"]));
    if (!can["runtimes"]["runc"].is_string() && !can["runtimes"]["crun"].is_string() && is_root())
      add("Install the package runc or crun.", "there is neither runc nor crun: `varve run` as root needs one");
    if (!document_["units"].is_array()) return;
    for (const auto& unit : document_["units"])
      if (text(unit["state"]).starts_with("failed"))
        add(fmt::format("journalctl --unit {}", text(unit["name"])), "the unit {} has failed: {}", text(unit["name"]),
            text(unit["result"]));
  }

  void look_at_files() {
    for (const auto& one : document_["credentials"])
      if (!text(one["trouble"]).empty())
        add("Repair or remove it; `podman login` writes one.", "the credential file {} cannot be used: {}",
            text(one["file"]), text(one["trouble"]));
    for (const auto& key : document_["trust"]["keys"])
      if (!text(key["trouble"]).empty())
        add("Indexes that it signed do not count until it is there.", "a key of [trust] cannot be read: {}",
            text(key["trouble"]));
  }

  const json& document_;
  json found_ = json::array();
};

}  // namespace

nlohmann::json find_faults(const nlohmann::json& document) { return Findings(document).find(); }

}  // namespace varve::cli
