#pragma once
// What `varve doctor` finds out about a machine, as parts of its document. Nothing here fails, waits for a daemon or a
// mount, or writes: what cannot be found out is null, or a text that says why. Secrets are still in it.
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/threads/cancel.h"
#include "core/oci/credential_files.h"
#include "core/trust/judge.h"
#include "fuse/control/control_messages.h"

namespace varve::cli {

// "release", "machine", "distribution".
nlohmann::json kernel_facts();
// What mounts and sessions need: bools, versions of runtimes, "cgroups": "v1", "v2" or "v1+v2".
nlohmann::json ability_facts(const CancelFlag& cancel);
// Of the file system that holds the nearest folder that is there: "path", "free_bytes", "total_bytes", "free_inodes",
// "total_inodes", "file_system".
nlohmann::json disk_facts(const std::filesystem::path& root);
// What is mounted below these folders, or by us anywhere: "dir", "type".
nlohmann::json mount_facts(const fuse::DaemonPaths& paths);
// Our units that systemd knows: "name", "state", "enabled", "result", "restarts". null without systemd.
nlohmann::json unit_facts(const CancelFlag& cancel);
// The last warnings and errors of daemon.log, and of the journal: "source", "lines".
nlohmann::json log_facts(const std::filesystem::path& log_file, bool systemd, const CancelFlag& cancel);
nlohmann::json credential_facts(const std::vector<oci::CredentialFile>& files);
nlohmann::json trust_facts(const trust::TrustSettings& settings);
// Variables that Varve or its libraries read; of those that may hold secrets only that they are set.
nlohmann::json environment_facts();

// The process that has locked a file (flock), and how it is: "pid", "state", "program"; null if nobody has.
nlohmann::json lock_holder(const std::filesystem::path& file);

}  // namespace varve::cli
