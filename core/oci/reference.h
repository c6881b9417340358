#pragma once
// Image references as users write them (CLI.md "Everywhere"): oci:DIR[:TAG], oci:DIR@sha256:...,
// [docker://]HOST[:PORT]/REPO[:TAG|@DIGEST] with Docker's rules for short names (docs of distribution/reference), and,
// to read from, docker-archive:FILE[:NAME[:TAG]] and dir:DIR, as skopeo writes them.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/digest.h"

namespace varve::oci {

struct Reference {
  enum class Kind { kLayout, kRegistry, kDockerArchive, kDirectory };
  Kind kind = Kind::kRegistry;
  std::filesystem::path layout_dir;  // kLayout: absolute
  std::filesystem::path path = {};   // kDockerArchive, kDirectory: absolute
  std::string host;                  // kRegistry: "registry.example:5000"; "docker.io" for short names
  std::string repository;            // kRegistry: "team/app"
  std::optional<std::string> tag;    // kRegistry without tag and digest: "latest"; kDockerArchive: "NAME:TAG"
  std::optional<Digest> digest;      // wins over the tag

  // Throws UsageError saying which part is wrong.
  static Reference parse(std::string_view text);
  // In full form; parse(to_string()) gives the same reference. Holds no credentials.
  std::string to_string() const;
  // Images are read from there, and nothing is written.
  bool is_read_only() const { return kind == Kind::kDockerArchive || kind == Kind::kDirectory; }
  // What Repository::name() is of what it names, which need not be there.
  std::string repository_name() const;
  // The tag or digest as the registry API takes it; empty for a layout folder with neither.
  std::string selector() const;
};

}  // namespace varve::oci
