#pragma once
// What a start is about to read, brought into the kernel's page cache: else each page that Python touches would be a
// request to the daemon, one after the other, after its bytes had come.
//
//     a read of a trigger -> ImagePacks brings the pack's frames, in the order in which the start reads
//                        `-> StartPages waits for each frame, then a child process asks the kernel (readahead(2)) for
//                        the
//                            pages of those bytes in the mounted files: the start finds them, or is soon caught up
//
// Only what the pack holds is asked for, when it is here. It costs no bytes: the pages are those that the start reads.
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "fuse/daemon/served_image.h"
#include "fuse/stream/pieces_under_way.h"

namespace varve::fuse {

// Part of a mounted file that shows bytes of a pack.
struct ShownPart {
  std::uint32_t file = 0;  // PackedFiles::paths
  ByteRange range;         // in the file
  bool operator==(const ShownPart&) const = default;
};

// The files of a tree that show bytes of its packs.
class PackedFiles {
 public:
  // Of all packs, or of one group's. Walks the whole tree: some 25 ms for 100,000 files, or 10.
  explicit PackedFiles(const ServedImage& image, const index::StartGroup* only = nullptr);
  // Below the root of the tree.
  const std::vector<std::string>& paths() const { return paths_; }
  // In the order of the stream; none where no file shows the range.
  std::vector<ShownPart> parts_of(const LayerStream& layer, ByteRange stream_range) const;

 private:
  struct Shown {
    ByteRange stream_range;
    ShownPart part;
  };
  std::vector<std::string> paths_;
  std::unordered_map<const LayerStream*, std::vector<Shown>> shown_;  // by offset
};

// Of one mount. Safe to use from any thread.
class StartPages {
 public:
  // `dir`: where the image, which has packs, is mounted.
  StartPages(std::shared_ptr<ServedImage> image, std::filesystem::path dir);
  ~StartPages();
  StartPages(const StartPages&) = delete;
  StartPages& operator=(const StartPages&) = delete;

  // Lets go of the mount, so that it can be unmounted; later starts are served again.
  void let_go();

 private:
  struct Start {
    const index::StartGroup* group = nullptr;
    std::size_t next_range = 0;
  };
  class Reader;

  void begin(const index::StartGroup& group);
  void loop(const std::stop_token& stop);
  bool go_on(Start& start, PiecesUnderWay& frames, Reader& reader);
  void find_files(const index::StartGroup& group);
  bool is_interrupted();

  const std::shared_ptr<ServedImage> image_;
  const std::filesystem::path dir_;
  // Of the thread alone.
  std::optional<PackedFiles> files_;
  const index::StartGroup* files_of_ = nullptr;  // null: of all groups

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Start> starts_;  // the last one first
  std::unordered_map<const index::StartGroup*, std::chrono::steady_clock::time_point> begun_;
  bool reading_ = false;      // the mount may be in use
  bool interrupted_ = false;  // until it is not
  std::shared_ptr<PiecesUnderWay> frames_;
  std::shared_ptr<void> listening_;
  std::jthread thread_;
};

}  // namespace varve::fuse
