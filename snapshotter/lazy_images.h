#pragma once
// Which layers need not be fetched: those of an image that has an index which counts. Decided once for an image, in the
// time that a caller can wait.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "core/base/threads/guarded.h"
#include "snapshotter/snapshot_table.h"
#include "snapshotter/trees.h"

namespace varve::snapshotter {

struct LazyOptions {
  std::chrono::milliseconds wait{2'000};    // for a look-up, of whoever pulls
  std::chrono::seconds look_up_limit{120};  // of the look-up itself, which goes on for who comes later
  std::chrono::seconds keep_refusal{60};    // for which an image that was refused is not looked up again
  std::chrono::seconds keep_answer{60};     // likewise of one that was found
  std::function<std::int64_t()> now;        // seconds since 1970
};

// Safe to use from any thread. Table and trees must outlive it.
class LazyImages {
 public:
  LazyImages(Guarded<SnapshotTable>& table, Trees& trees, LazyOptions options);
  // Waits for look-ups under way.
  ~LazyImages();
  LazyImages(const LazyImages&) = delete;
  LazyImages& operator=(const LazyImages&) = delete;

  // The tree that ends with the layer of this chain ID, by the labels of its Prepare. Absent: it must be unpacked; that
  // was logged, and recorded, unless nothing is known of the image.
  std::optional<Seed> find(const std::string& chain, const Labels& labels);
  // Records the images of this machine that are not in the table yet, as far as they can be opened.
  void learn_opened();
  // Decisions against an image, since this was made.
  std::uint64_t refused() const { return refused_; }
  // Look-ups that nobody waits for any more, too.
  std::size_t under_way();

 private:
  struct Refused {
    std::string why;
    bool may_pass = false;  // nothing was found to speak against it
  };
  using Outcome = std::variant<std::monostate, KnownImage, Refused>;  // nothing yet, it, or why not
  struct LookUp {
    Outcome outcome;
  };
  struct State {
    std::map<Digest, std::shared_ptr<LookUp>> under_way;
    std::map<Digest, std::int64_t> found_at;
    std::size_t threads = 0;
  };

  std::optional<Seed> find_labelled(const std::string& chain, const std::string& reference, const std::string& digest);
  std::optional<Seed> find_seed(const std::string& chain);
  Outcome decide(const std::string& reference, const Digest& image);
  Outcome look_up(const std::string& reference, const Digest& image);
  KnownImage look_up_as_named(const std::string& reference, const Digest& image);
  void run_look_up(const std::string& reference, const Digest& image, const std::shared_ptr<LookUp>& one) noexcept;
  Refused refuse(const std::string& reference, const Digest& image, std::string why);

  Guarded<SnapshotTable>& table_;
  Trees& trees_;
  const LazyOptions options_;
  std::atomic<std::uint64_t> refused_ = 0;
  Guarded<State> state_;
  std::condition_variable changed_;
};

}  // namespace varve::snapshotter
