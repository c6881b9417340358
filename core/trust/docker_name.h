#pragma once
// Names of images as signatures and containers' policies write them: always in full, with a tag, a digest, both or
// neither.
#include <optional>
#include <string>
#include <string_view>

namespace varve::trust {

struct DockerName {
  std::string repository;  // "docker.io/library/app"
  std::string tag;         // "" if none
  std::string digest;      // "sha256:…", "" if none

  // Short names are completed as Docker does it, but for the tag: what has none stays without. Absent for what is no
  // name.
  static std::optional<DockerName> parse(std::string_view text);
  std::string to_string() const;
  bool is_name_only() const { return tag.empty() && digest.empty(); }
};

}  // namespace varve::trust
