#include "cli/doctor/findings.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/doctor/doctor_page.h"

namespace varve::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// A machine on which all is well.
json document() {
  return json::parse(R"json({
    "generated": "2026-11-23T00:00:00Z",
    "program": {"version": "0.2.0", "path": "/usr/bin/varve", "uid": 0, "root": "/var/lib/varve",
                "run_dir": "/run/varve"},
    "kernel": {"release": "6.18.1", "machine": "x86_64", "distribution": "Debian"},
    "can": {"erofs": true, "fuse": true, "fusermount3": "fusermount3 version: 3.14.0", "overlay": true,
            "user_namespaces": true, "cgroups": "v2", "systemd": true,
            "runtimes": {"runc": "runc version 1.1.5", "crun": null}},
    "disk": {"path": "/var/lib/varve", "file_system": "ext4", "free_bytes": 90000000000, "total_bytes": 100000000000,
             "free_inodes": 900, "total_inodes": 1000},
    "mounts": [], "settings": [], "environment": {}, "credentials": [], "registries": [], "log": [],
    "trust": {"index": "any", "place": "", "keys": [], "scopes": 0, "denied": 0, "min_tool": "", "policy": "none"},
    "units": [{"name": "varve.service", "state": "active (running)", "enabled": "enabled", "result": "success",
               "restarts": "0"}],
    "daemon": {"state": "runs", "trouble": "", "process": null},
    "status": {"daemon": {"pid": 5, "version": "0.2.0", "keeper": "systemd"}, "mounts": [], "idle": [], "pulls": []},
    "findings": []
  })json");
}

std::string first_finding(const json& document) {
  const auto found = find_faults(document);
  if (found.size() != 1) return found.dump();
  EXPECT_NE(found[0]["next"], "");
  return found[0]["what"].get<std::string>();
}

TEST(DoctorFindingsTest, FindsNothingWhereAllIsWell) {
  EXPECT_EQ(find_faults(document()), json::array());
  EXPECT_THAT(doctor_page(document()), HasSubstr("nothing that could be seen"));
}

TEST(DoctorFindingsTest, NamesWhatIsWrong) {
  const auto with = [](const char* place, const json& value) {
    auto changed = document();
    changed[json::json_pointer(place)] = value;
    return first_finding(changed);
  };
  EXPECT_THAT(with("/status/daemon/version", "0.1.9"), HasSubstr("version 0.1.9, this program of 0.2.0"));
  EXPECT_THAT(with("/status/daemon/keeper", "none"), HasSubstr("nothing keeps"));
  EXPECT_THAT(with("/disk/free_bytes", 10), HasSubstr("10 B of 100.0 GB left"));
  EXPECT_THAT(with("/disk/free_inodes", 0), HasSubstr("0 inodes left of 1000"));
  EXPECT_THAT(with("/disk", nullptr), HasSubstr("does not answer"));
  EXPECT_THAT(with("/can/fuse", false), HasSubstr("/dev/fuse"));
  EXPECT_THAT(with("/can/runtimes/runc", nullptr), HasSubstr("neither runc nor crun"));
  EXPECT_THAT(with("/units/0/state", "failed (failed)"), HasSubstr("varve.service has failed"));
  EXPECT_THAT(with("/status/pulls", json::parse(R"([{"reference": "r/a:v1", "error": "no space"}])")),
              HasSubstr("pull of r/a:v1 failed: no space"));
  EXPECT_THAT(with("/registries", json::parse(
                                      R"([{"host": "r", "mirror": true, "state": "resting", "failures": 3, "wrong": 0,
                   "last_error": "503"}])")),
              HasSubstr("mirror r is resting: 3 requests failed"));
  EXPECT_THAT(
      with("/status/mounts", json::parse(
                                 R"([{"reference": "r/a:v1", "errors": 2, "last_error": "gone", "waiting_seconds": 0,
                   "waiting_for": ""}])")),
      HasSubstr("2 reads of r/a:v1 failed, the last one: gone"));
  EXPECT_THAT(with("/trust/keys", json::parse(R"([{"file": "k", "id": null, "trouble": "k: not there"}])")),
              HasSubstr("k: not there"));
}

TEST(DoctorFindingsTest, SaysOfMountsThatNobodyServes) {
  auto changed = document();
  changed["daemon"]["state"] = "none";
  changed["status"] = {{"daemon", nullptr}, {"mounts", json::array()}};
  changed["mounts"] =
      json::parse(R"([{"dir": "/mnt/image", "type": "fuse.varve"}, {"dir": "/run/varve", "type": "tmpfs"}])");
  EXPECT_THAT(first_finding(changed), HasSubstr("/mnt/image is still mounted"));
  EXPECT_THAT(doctor_page(changed), HasSubstr("/mnt/image (fuse.varve)"));
}

}  // namespace
}  // namespace varve::cli
