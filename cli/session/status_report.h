#pragma once
// What `varve status` says of a daemon: for people, within 100 columns, and as JSON.
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/base/digest.h"
#include "fuse/control/control_messages.h"

namespace varve::cli {

// The names of running sessions, by the image that they run.
using RunningSessions = std::map<std::string, std::vector<std::string>>;
// Of a root; none where they cannot be read.
RunningSessions running_sessions(const std::filesystem::path& root);

// How people call it: "team/notebook:v1", "oci:image:v1", "team/notebook@sha256:0123456789ab".
std::string short_reference(const std::string& reference);
// The short names of images that are listed together, but in full for those that more than one of them has; printable.
class ImageNames {
 public:
  explicit ImageNames(const std::vector<std::string>& references);
  // Of one of these.
  std::string of(const std::string& reference) const;

 private:
  std::map<std::string, std::set<std::string>> full_;
};
// The host of a repository as Repository::name() gives it, or the whole name of a folder.
std::string host_of(const std::string& repository);
// "session lab", "sessions lab, other"
std::string sessions_text(const std::vector<std::string>& names);
// "held by pod-1, pod-2, pod-3, 4 more"
std::string holders_text(const std::vector<std::string>& held_by);
// "held by pod-1", "lab" and "sessions lab, other"; without a name the processes that hold the image.
std::string name_sessions(const fuse::MountStatus& mount, const RunningSessions& sessions);

std::string status_text(const fuse::DaemonStatus& status, const RunningSessions& sessions);
nlohmann::json status_json(const fuse::DaemonStatus& status, const RunningSessions& sessions);

}  // namespace varve::cli
