#pragma once
// Notifications of registries: which images were pushed. distribution's events (application/vnd.docker.distribution.
// events.v1+json and v2, docs of distribution/notifications) and Harbor's, in its own form and as CloudEvents (docs of
// goharbor/webhooks).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"

namespace varve::webhook {

inline constexpr std::uint64_t kMaxNotificationBytes = 1 << 20;
inline constexpr std::size_t kMaxEvents = 2000;  // of one notification

struct Pushed {
  std::string repository;  // "team/notebook", a name that a reference may have
  std::string tag;         // "" if it was pushed by digest
  Digest digest;           // of the manifest or list
  bool operator==(const Pushed&) const = default;
};

struct Notification {
  std::vector<Pushed> pushed;    // in the order of the events
  std::size_t others = 0;        // events of other kinds: pulls, blobs, deletions, what lists referrers
  std::vector<std::string> bad;  // why events could not be read; the rest of a notification counts all the same
};

// Nothing of it says where to ask: hosts and URLs in it are not looked at. Throws CorruptData for what is no JSON or
// none of the forms, Unsupported beyond the limits.
Notification parse_notification(std::string_view body);

// "sha256-<64 hex digits>", also with ".sig", ".att" or ".sbom" behind it: what tools put beside images.
bool is_tag_beside_image(std::string_view tag);

}  // namespace varve::webhook
