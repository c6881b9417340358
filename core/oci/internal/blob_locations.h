#pragma once
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "core/base/digest.h"
#include "core/oci/internal/url.h"

namespace varve::oci::internal {

// Where the bytes of blobs really lie: registries redirect to signed storage URLs, which serve for minutes and for any
// range. One reader asks the registry, the others wait for what it learns; not of a registry that has last answered
// itself, where nothing is learnt but a round trip lost. Safe to use from any thread.
class BlobLocations {
 public:
  // What begin() found out; if `resolves`, the owner must ask the registry, and gives up when destroyed unless it told.
  class Lease {
   public:
    Lease(BlobLocations& locations, const Digest& blob, std::optional<Url> url, bool resolves)
        : locations_(locations), blob_(blob), url_(std::move(url)), resolves_(resolves) {}
    ~Lease() {
      if (resolves_) locations_.tell(blob_, State::kUnknown, nullptr);
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    const std::optional<Url>& url() const { return url_; }  // absent: ask the registry
    void found(const Url& url) { tell(State::kStorage, &url); }
    void registry_answers_itself() { tell(State::kRegistry, nullptr); }

   private:
    friend BlobLocations;
    enum class State { kUnknown, kResolving, kRegistry, kStorage };
    void tell(State state, const Url* url) {
      resolves_ = false;
      locations_.tell(blob_, state, url);
    }
    BlobLocations& locations_;
    Digest blob_;
    std::optional<Url> url_;
    bool resolves_;
  };

  Lease begin(const Digest& blob);
  // The URL was refused: ask the registry next time, unless somebody has already found another one.
  void forget(const Digest& blob, const std::optional<Url>& url);

 private:
  using State = Lease::State;
  struct Entry {
    State state = State::kUnknown;
    std::optional<Url> url;
    std::chrono::system_clock::time_point expires;
  };
  void tell(const Digest& blob, State state, const Url* url);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Digest, Entry> entries_;
  bool registry_answers_ = false;  // the last blob that it was asked for
};

// When a signed URL says that it ends: X-Amz-Date and X-Amz-Expires (and Google's), or Expires in epoch seconds.
std::optional<std::chrono::system_clock::time_point> expiry_of(const Url& url);

}  // namespace varve::oci::internal
