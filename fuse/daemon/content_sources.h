#pragma once
// A new version of an image takes from the old one what is equal: tells layer streams what is in their layers, and in
// which others to look first. For images of one repository, and for those that share a layer; an image that resembles
// none that is here costs nothing.
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "core/base/threads/cancel.h"
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

  // What an image is told by. kSeeds: what its index says an earlier version has, where it does and is vouched for, and
  // that version is here; else, and where others have more, as kEntries: by the layer entries of both, which are
  // fetched where they are not here. What comes by seeds is not recorded, so who fetches all of an image needs entries.
  enum class By : std::uint8_t { kSeeds, kEntries };

  // Soon, for as long as somebody else holds the image; not again before another image is opened. One at a time; until
  // then its layers are read as if nothing were here. What fails is logged, and nobody's failure.
  void learn_later(const std::shared_ptr<ServedImage>& image, By by);
  // The same in this thread. Throws Cancelled.
  void learn(const std::shared_ptr<const ServedImage>& image, By by, const CancelFlag& cancel);
  void stop();

 private:
  struct Source;
  struct Asked {
    std::weak_ptr<ServedImage> image;
    By by = By::kSeeds;
  };
  struct Learnt {
    std::weak_ptr<const ServedImage> image;
    By by = By::kSeeds;
    std::uint64_t opened = 0;  // images that were, when it was learnt
  };
  void run(const std::stop_token& stop);
  std::vector<Learnt>::iterator find_learnt(const ServedImage& image);
  bool is_learnt(const ServedImage& image, By by);
  bool learn_all(const ServedImage& image, By by, const CancelFlag& cancel);
  std::vector<OpenedImage> find_related(const ServedImage& image, const CancelFlag& cancel) const;
  std::optional<Source> open_source(const StoredLayer& name, const oci::Descriptor& entries,
                                    const std::vector<StoredLayer>& stored) const;
  void add_layers(const ServedImage& image, const OpenedImage& related, const std::vector<StoredLayer>& stored,
                  std::vector<Source>& sources) const;
  bool know(const StoredLayer& layer, const oci::Descriptor& entries, oci::Repository& from) const;
  static std::uint64_t bytes_beside(const ServedImage& image, const std::vector<Source>& sources);
  void use_parts(const ServedImage& image, const std::vector<Source>& sources) const;
  std::set<Digest> layers_of_repository(const ServedImage& image) const;
  bool try_seeds(const ServedImage& image, oci::Repository& from) const;
  bool use_seeds(const ServedImage& image, oci::Repository& from) const;

  const std::shared_ptr<index::LocalIndex>& local_;
  const OpenedImages& opened_;
  LayerStreams& streams_;
  const std::filesystem::path root_;
  CancelFlag stopping_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Asked> waiting_;
  std::vector<Learnt> learnt_;
  std::uint64_t opened_so_far_ = 0;
  std::jthread thread_;
};

}  // namespace varve::fuse
