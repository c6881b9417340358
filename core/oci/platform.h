#pragma once
// Platforms of image indexes (OCI image-spec image-index.md, "platform"; normalised as containerd does).
#include <string>
#include <string_view>

namespace varve::oci {

struct Platform {
  std::string os;            // "linux"
  std::string architecture;  // GOARCH name: "amd64"
  std::string variant;       // "" if none

  // "os/arch[/variant]" or a known "arch"; aliases such as x86_64 and aarch64 are normalised. Throws UsageError.
  static Platform parse(std::string_view text);
  static Platform of_this_machine();
  Platform normalised() const;
  std::string to_string() const;
  bool operator==(const Platform&) const = default;
};

// How well an offer fits: 0 exactly, larger for lower variants, -1 not at all.
int platform_distance(const Platform& wanted, const Platform& offered);

}  // namespace varve::oci
