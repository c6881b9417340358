#pragma once
// Which index of an image may be believed, and why: the one place that decides it. docs/design/README.md "Trust" has
// the rules.
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/oci/image.h"
#include "core/trust/origin.h"

namespace varve::trust {

// There is an index, but nothing that counts here vouches for it.
class Untrusted : public Error {
 public:
  using Error::Error;
};

// [trust] index = "..." of varve.toml.
enum class IndexRule : std::uint8_t {
  kDefault,  // nothing configured: by digest only what is vouched for; by tag the repository's writers are believed
  kSigned,   // vouched for, however it was asked for
  kPolicy,   // what containers' policy.json asks for, else as kDefault
  kPinned,   // also what was used first for the image in that very repository
  kAny,      // also what the repository offers
};
std::string_view to_string(IndexRule rule);
// Absent if it is none.
std::optional<IndexRule> parse_index_rule(std::string_view text);

struct TrustScope {
  std::string prefix = {};                       // of Repository::name(): a whole name, or one that ends before a '/'
  std::vector<std::filesystem::path> keys = {};  // instead of those of the settings
  std::optional<IndexRule> index = {};           // instead of that of the settings
  std::string place = {};                        // "/etc/varve/varve.toml:12"
};

struct TrustSettings {
  IndexRule index = IndexRule::kDefault;
  std::string place = {};  // file and line that say so; "" = nothing is configured
  std::vector<std::filesystem::path> keys = {};
  std::vector<TrustScope> scopes = {};
  std::set<Digest> deny = {};         // indexes that never count
  std::string min_tool = {};          // "varve 0.4.2": what an older one made does not count; "" = no limit
  std::filesystem::path policy = {};  // containers' policy.json; "" = where podman has it

  // The most specific that fits; null if none does.
  const TrustScope* scope_of(std::string_view repository) const;
};

// How an image was asked for.
struct Request {
  std::string repository = {};  // Repository::name(): the logical name, not that of a mirror
  std::string selector = {};    // as typed: a tag, a digest or ""
  Digest image = {};
  bool by_digest() const { return selector.starts_with("sha256:"); }

  static Request of(const oci::Image& image);
};

// An index that might be used.
struct Candidate {
  const oci::Document& manifest;  // of the index artifact, digest checked
  std::string tool = {};          // that made it, in its own words
  Origin origin = {};             // what is recorded of it
  bool offered_now = false;       // by the repository of the request, a moment ago
  // Of the further repositories where the user looks for indexes (index-from), one that offers it or that it came from;
  // "" = none.
  std::string index_from = {};
  oci::Repository* place = nullptr;  // where it was found; its signatures lie there, too
  oci::Repository* kept = nullptr;   // ROOT/index, where signatures are kept for when the repository is away
};

struct Judgement {
  bool trusted = false;
  bool vouched = false;                   // built here, proved or signed, not only offered or seen first
  std::string rule = {};                  // why: "built on this machine", with the file and line of a setting
  std::vector<std::string> signers = {};  // that count: short ids
  std::string refusal = {};               // why not: of this candidate, one line; "" if trusted
};

// What signatures say of a candidate.
struct SignatureFindings {
  std::vector<std::string> signers =
      {};  // keys that count for the repository and have signed it; empty: not signed by any
  std::vector<std::string> keys_tried = {};  // short ids
  std::size_t seen = 0;                      // signatures that were there, good or not
  std::string trouble = {};  // why one that is there does not count, or could not be asked for; "" = nothing
};

// What containers' policy says of the image itself.
struct ImageVerdict {
  bool accepted = true;
  std::string rule = {};                  // the file and the scope in it; "" = there is no policy
  std::vector<std::string> signers = {};  // that the policy asks for
  std::string refusal = {};               // "" if accepted
};

// Looks for signatures. Safe to use from any thread. Does not throw: what goes wrong is a finding.
class SignatureChecker {
 public:
  virtual ~SignatureChecker() = default;
  // False if no key counts for the request: then nothing is asked for, over the network least of all.
  virtual bool has_keys(const Request& request) const = 0;
  virtual SignatureFindings check(const Request& request, const Candidate& candidate) const = 0;
  // The place in containers' policy that demands signatures for the request; "" if none does.
  virtual std::string demand(const Request&) const { return {}; }
  // `place` is where the image is, `kept` (may be null) where signatures are kept that count.
  virtual ImageVerdict check_image(const Request&, oci::Repository& /*place*/, oci::Repository* /*kept*/) const {
    return {};
  }
};
// As the settings have it. Throws UsageError naming a key that cannot be read.
std::shared_ptr<const SignatureChecker> make_signature_checker(const TrustSettings& settings);

// Safe to use from any thread.
class Judge {
 public:
  Judge(TrustSettings settings, std::shared_ptr<const SignatureChecker> signatures);

  // `first_used` is the index that was used first for this image of this repository, absent if none was.
  Judgement judge(const Request& request, const Candidate& candidate, const std::optional<Digest>& first_used) const;
  // True if the rule for the request takes an index whose content is that of one that is trusted, with other notes
  // (profile, cold marks).
  bool takes_notes_of_others(const Request& request) const { return rule_for(request).rule != IndexRule::kSigned; }
  bool has_keys(const Request& request) const { return signatures_->has_keys(request); }
  // True if what was used first decides for the request.
  bool pins(const Request& request) const { return rule_for(request).rule == IndexRule::kPinned; }
  bool is_denied(const Digest& index_manifest) const { return settings_.deny.contains(index_manifest); }
  // Whether containers' policy takes the image itself.
  ImageVerdict judge_image(const oci::Image& image, oci::Repository* kept) const;
  // Throws Untrusted if it does not.
  void require_image(const oci::Image& image, oci::Repository* kept) const;
  // For the error when none of the candidates is trusted: the image, the setting, what was wrong with each, and the
  // ways out.
  std::string refusal(const Request& request, const std::vector<std::string>& of_candidates) const;

  const TrustSettings& settings() const { return settings_; }

 private:
  struct Rule {
    IndexRule rule = IndexRule::kDefault;
    std::string place;
    bool is_policy = false;  // containers' policy demands signatures, not a setting of ours
  };
  Rule rule_for(const Request& request) const;

  const TrustSettings settings_;
  const std::shared_ptr<const SignatureChecker> signatures_;
};

}  // namespace varve::trust
