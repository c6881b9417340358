#pragma once
// What is to be done with which images: the file of `varve webhook --config` (docs/howto/registry-webhook.md).
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/http/listen_address.h"
#include "core/oci/platform.h"
#include "core/oci/reference.h"

namespace varve::webhook {

// For the images of some repositories.
struct Rule {
  std::vector<std::string> repositories;  // patterns (core/base/text/glob.h)
  std::vector<std::string> tags;          // likewise; none = all
  std::vector<oci::Platform> platforms;   // none = all
  std::filesystem::path key;              // "" = nothing is signed
  std::filesystem::path passphrase_file;  // "" = as the environment says
  bool learn = false;                     // start-up packs as well
  bool previous = false;                  // with what the repository's image before it has, `varve index --previous`

  bool has_repository(std::string_view repository) const;
  // "": pushed by digest, which only a rule without tags has.
  bool has_tag(std::string_view tag) const;
  bool has_platform(const oci::Platform& platform) const;
};

inline constexpr unsigned kMaxConnections = 64;  // of all that tell and ask

struct Settings {
  std::string registry;  // "registry.example:5000": the only one that is ever asked
  ListenAddress listen;
  std::string secret;                    // what Authorization must say; "" = nothing
  std::string queue;                     // of open_sql(); "" = a file of the root
  unsigned workers = 1;                  // images at the same time
  std::chrono::seconds sweep{3600};      // between two looks at the tags of all repositories; 0 = never
  std::chrono::seconds lease{120};       // a worker that says nothing for so long has died
  std::chrono::seconds limit{4 * 3600};  // of one program
  std::chrono::seconds first_wait{10};   // before the second attempt; doubled with each, up to an hour
  unsigned attempts = 8;                 // of what may pass
  std::uint64_t max_queued = 10'000;
  // Of one address (HttpRequest::peer); 0 = as many as there are of all.
  unsigned address_connections = 16;
  std::uint64_t address_images = 600;  // new ones in a minute
  std::vector<Rule> rules;

  // The first that has them; null if none has.
  const Rule* rule_for(std::string_view repository, std::string_view tag) const;
  oci::Reference reference(const std::string& repository) const;
};

// Paths are relative to the file's folder. `listen` wins over the file's where it is there. Throws CorruptData
// "FILE:LINE: ..." for what is wrong in it, UsageError where it would take orders from everybody: an address beyond
// this machine without a secret.
Settings parse_settings(std::string_view toml, const std::filesystem::path& file,
                        const std::optional<std::string>& listen);
// Throws UsageError if there is no such file.
Settings read_settings(const std::filesystem::path& file, const std::optional<std::string>& listen);

}  // namespace varve::webhook
