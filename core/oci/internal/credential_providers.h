#pragma once
// The credential provider plugins of the kubelet, called as it calls them (kubelet.config.k8s.io
// CredentialProviderConfig, credentialprovider.kubelet.k8s.io v1): short-lived credentials of clouds, which the node
// has anyway.
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/oci/internal/credentials.h"
#include "core/oci/repository.h"

namespace varve::oci::internal {

// One entry of the configuration.
struct CredentialProvider {
  std::string name;  // of the program in the folder of plugins
  std::string api_version;
  std::vector<std::string> match_images;
  std::chrono::milliseconds default_cache_duration{0};
  std::vector<std::string> args;
  std::vector<std::string> env;        // NAME=value, beside this process's own
  bool needs_service_account = false;  // which only the kubelet has
};

// JSON or YAML. Throws CorruptData naming `what` and the field.
std::vector<CredentialProvider> parse_credential_providers(std::string_view text, std::string_view what);

// Whether "HOST[:PORT][/PATH]" of a repository fits a pattern of matchImages, or a key of an answer's `auth`: as many
// labels in the host, each by its glob, the same port or none in both, the path from its beginning.
bool image_matches(std::string_view pattern, std::string_view image);

// "12h", "1h30m", "1.5s": a duration as Go writes it. Absent for what is none, or is negative.
std::optional<std::chrono::milliseconds> parse_go_duration(std::string_view text);

struct ProviderAnswer {
  enum class CacheKey : std::uint8_t { kImage, kRegistry, kGlobal };
  CacheKey cache_key = CacheKey::kImage;
  std::optional<std::chrono::milliseconds> cache_duration;
  std::map<std::string, Credential> credentials;  // by pattern

  // Of the pattern that says most.
  std::optional<Credential> find(std::string_view image) const;
};
// What a plugin wrote. Throws CorruptData or Unsupported; its words are in no message.
ProviderAnswer parse_provider_answer(std::string_view text, std::string_view api_version, std::string_view what);

// Asks plugins, and keeps what they said in memory for as long as they allow. Safe to use from any thread; readers that
// want the same share one call.
class CredentialProviders {
 public:
  CredentialProviders(CredentialProviderSettings settings, Clock& clock, std::chrono::milliseconds time_limit);

  // Of the first plugin that knows the image ("HOST/REPO"). One that fails is logged, not asked for a while, and the
  // next one comes. `anew`: what was said before was refused; asked again unless that is a moment ago. Throws Cancelled
  // alone.
  std::optional<Credential> find(const std::string& image, bool anew, const CancelFlag* cancel);

 private:
  struct Kept {
    ProviderAnswer answer;
    Clock::TimePoint asked, ends;
  };
  struct Program {
    bool running = false;
    std::map<std::string, Kept> kept;  // by what the answer holds for
    std::optional<Clock::TimePoint> rests_until;
  };

  std::vector<CredentialProvider> read_config();
  std::optional<Credential> ask(const CredentialProvider& provider, const std::string& image, bool anew,
                                const CancelFlag* cancel);
  ProviderAnswer run(const CredentialProvider& provider, const std::string& image, const CancelFlag* cancel) const;
  static const Kept* find_kept(const Program& program, const std::string& image, Clock::TimePoint now);

  const CredentialProviderSettings settings_;
  Clock& clock_;
  const std::chrono::milliseconds time_limit_;
  std::mutex mutex_;  // guards what follows; not held while a plugin runs
  std::condition_variable changed_;
  std::map<std::string, Program> programs_;
  std::string told_;  // trouble with the configuration that the log has already
};

}  // namespace varve::oci::internal
