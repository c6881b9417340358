#pragma once
// Where else than at its own registry the content of a repository may be read, as users say it.
#include <filesystem>
#include <string>
#include <vector>

namespace varve::oci {

// One [[mirror]] of varve.toml.
struct MirrorRule {
  std::string prefix;                  // "registry.example:5000", "docker.io/library", of whole path parts
  std::vector<std::string> locations;  // [http[s]://]HOST[:PORT][/PATH], which takes the prefix's place; asked in order
  bool resolve = false;                // tags and lists of referrers may come from there, not only content by digest
  bool upstream = true;                // what the prefix names is asked too, last
  std::string place;                   // "varve.toml:7", for messages
  bool operator==(const MirrorRule&) const = default;
};

struct MirrorSettings {
  bool off = false;                               // registries are asked themselves, no file is read
  std::vector<std::filesystem::path> hosts_dirs;  // of folders HOST with a hosts.toml; none: containerd's and docker's
  std::filesystem::path registries_conf;          // "": the user's, else the machine's, and their registries.conf.d
  std::vector<MirrorRule> rules;                  // beat both
};

}  // namespace varve::oci
