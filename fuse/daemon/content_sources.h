#pragma once
// A new version of an image takes from the old one what is equal: tells layer streams what is in their layers, and in
// which others to look first. For images of one repository, and for those that share a layer; an image that resembles
// none that is here costs nothing.
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/cancel.h"
#include "core/index/local_index.h"
#include "fuse/daemon/opened_images.h"
#include "fuse/daemon/served_image.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

// Safe to use from any thread. One thread, none before there is an image; nobody waits for it.
class ContentSources {
 public:
  // At most so many images that are here are looked into for another, those of its repository and the last used first.
  static constexpr std::size_t kMostImages = 3;

  // All must outlive it; `root` is that of `local`.
  ContentSources(const std::shared_ptr<index::LocalIndex>& local, const OpenedImages& opened, LayerStreams& streams,
                 std::filesystem::path root);
  ~ContentSources() { stop(); }

  // Soon, for as long as somebody else holds the image; not again before another image is opened. Fetches the layer
  // entries that are not here, one at a time; until then its layers are read as if nothing were here. What fails is
  // logged, and nobody's failure.
  void learn_later(const std::shared_ptr<ServedImage>& image);
  // The same in this thread. Throws Cancelled.
  void learn(const ServedImage& image, const CancelFlag& cancel);
  void stop();

 private:
  struct Source;
  struct Learnt {
    std::weak_ptr<const ServedImage> image;
    std::uint64_t opened = 0;  // images that were, when it was learnt
  };
  void run(const std::stop_token& stop);
  std::vector<Learnt>::iterator find_learnt(const ServedImage& image);
  std::uint64_t note_opened(const ServedImage& image);
  bool learn_all(const ServedImage& image, const CancelFlag& cancel);
  std::vector<OpenedImage> find_related(const ServedImage& image, const CancelFlag& cancel) const;
  void add_layers(const ServedImage& image, const OpenedImage& related, oci::Repository& entries_from,
                  std::vector<Source>& sources) const;
  bool know(const StoredLayer& layer, const oci::Descriptor& entries, oci::Repository& from) const;

  const std::shared_ptr<index::LocalIndex>& local_;
  const OpenedImages& opened_;
  LayerStreams& streams_;
  const std::filesystem::path root_;
  CancelFlag stopping_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::weak_ptr<ServedImage>> waiting_;
  std::vector<Learnt> learnt_;
  std::uint64_t opened_so_far_ = 0;
  std::jthread thread_;
};

}  // namespace varve::fuse
