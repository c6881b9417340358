#pragma once
// Blobs that an index is said to begin with, fetched while its manifest still is: a round trip less before a mount is
// usable. The list of referrers says which (kFirstLoadAnnotation); whether it is right the manifest says, and what that
// does not name nobody takes.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/threads/cancel.h"
#include "core/oci/repository.h"

namespace varve::index {

// Safe to use from any thread.
class EarlyBlobs {
 public:
  static constexpr std::uint64_t kMaxBytes = 64 << 20;  // of all; those that come first

  EarlyBlobs(std::shared_ptr<oci::Repository> source, std::vector<oci::Descriptor> wanted);
  ~EarlyBlobs();  // waits for what is under way; what is not begun is left
  EarlyBlobs(const EarlyBlobs&) = delete;
  EarlyBlobs& operator=(const EarlyBlobs&) = delete;

  // Its bytes, checked against digest and size, once. Waits if they are under way. Absent if it was not wanted, or
  // could not be had: whoever needs it asks, and learns why.
  std::optional<Bytes> take(const oci::Descriptor& blob);

 private:
  struct One {
    oci::Descriptor blob;
    bool is_over = false;
    std::optional<Bytes> bytes;
  };
  void fetch(One& one);

  const std::shared_ptr<oci::Repository> source_;
  std::vector<One> all_;
  CancelFlag cancel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::jthread thread_;
};

}  // namespace varve::index
