#pragma once
// Looks in the background at layers that have become complete: whether they are what the image says. An index all of
// whose layers are, and whose tree is theirs, is as good as one that was made here; one that is refuted is not used
// again. Bytes that the disk has damaged prove nothing and refute nothing.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/threads/cancel.h"
#include "core/index/local_index.h"
#include "fuse/daemon/served_image.h"

namespace varve::fuse {

// What was found of one layer of an image.
struct LayerProof {
  Digest layer;
  bool complete = false;
  bool proved = false;       // its stream is the one that the image's config names
  std::string refuted = {};  // what it is instead
};
struct ImageProof {
  std::vector<LayerProof> layers;  // each once, base first
  bool tree_proved = false;
  std::string tree_refuted = {};  // or its start-up packs
  bool refuted() const;
};

// Now, in this thread, however often it was looked at before. What is found is recorded. It is cancelled between
// reads. Throws index::DamagedStream.
ImageProof prove(const ServedImage& image, index::LocalIndex& local, bool with_tree, const CancelFlag& cancel);

// Safe to use from any thread. One thread of the lowest priority, that reads at most kBytesPerSecond, and works for a
// twentieth of the time while `busy` says that spans are decoded: it took 12 of the 83 seconds of a pull that both
// processors have, and a pull was done an eighth later.
class LayerProofs {
 public:
  static constexpr std::uint64_t kBytesPerSecond = 400ull << 20;
  static constexpr int kShareWhileBusy = 20;

  LayerProofs(std::shared_ptr<index::LocalIndex> local, std::function<bool()> busy);
  ~LayerProofs();

  // Watches the image for as long as somebody else holds it.
  void watch(const std::shared_ptr<ServedImage>& image);
  void stop();

 private:
  void run(const std::stop_token& stop);
  void look_at(const std::shared_ptr<ServedImage>& image, const std::stop_token& stop);

  const std::shared_ptr<index::LocalIndex> local_;
  const std::function<bool()> busy_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::weak_ptr<ServedImage>> images_;
  std::jthread thread_;
};

}  // namespace varve::fuse
