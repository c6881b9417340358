#pragma once
// The start-up packs of an image that is open: sees a start begin by the first read of its trigger, brings the pack,
// and says of each read which of its bytes are better read from packs than from the layers.
//
//     a read -> PackedFile::find_pieces -> the trigger of a group? --first time--> its stream is opened, its frames are
//                                          |                                       wanted in their order
//                                          v
//               the layer has the bytes: from there; a pack that was triggered has them: from it, and from the
//               layer if the pack fails; else from the layer
//
// The kernel asks for a file's pages by several requests at once: who reads of a trigger while its stream is opened
// waits for that, else it would read from the layer what is in the pack.
//
// The start that began last is brought first: what it waits for is what the one before waits for, too (pandas imports
// numpy). What several packs hold is read from the one that was used first; frames of the others that hold nothing else
// are not brought.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/base/threads/guarded.h"
#include "core/index/format/start_packs.h"
#include "fuse/mount/image_seeds.h"
#include "fuse/mount/stream_file.h"
#include "fuse/stream/layer_stream.h"
#include "fuse/stream/pieces_under_way.h"

namespace varve::fuse {

// Of the kernel, in mounts of images with packs and where reads are recorded: more would ask for bytes between those
// that a start touches, which are in no pack.
inline constexpr unsigned kPackReadAheadKb = 8;

// Safe to use from any thread. The layers must outlive it.
class ImagePacks {
 public:
  // The stream of a pack, for somebody who reads: nothing is written to disk. May throw: the start then goes on
  // without.
  using OpenPack = std::function<std::shared_ptr<LayerStream>(const index::StartPack& pack)>;
  // What is to be kept of it; called once, soon after, from a thread that nobody waits for. What it throws is logged.
  using KeepPack = std::function<void(const index::StartPack& pack)>;

  // `layers`: of the image, each once. `packs`, which outlives this, is checked against them. What `seeds` has is not
  // fetched.
  ImagePacks(const index::StartPacks& packs, const std::vector<std::shared_ptr<LayerStream>>& layers,
             std::shared_ptr<const ImageSeeds> seeds, OpenPack open, KeepPack keep);
  ~ImagePacks();  // fetches no more
  ImagePacks(const ImagePacks&) = delete;
  ImagePacks& operator=(const ImagePacks&) = delete;

  // Until this was called, triggers are not looked at. Packs for which `is_here` says so are used at once, without
  // their trigger: what asks for them may have read it before this process began.
  void enable(const std::function<bool(const index::StartPack&)>& is_here);
  bool is_enabled() const { return enabled_; }

  // Called, by whoever reads, for each read of a trigger once its pack is used. It must not wait.
  using OnStart = std::function<void(const index::StartGroup& group)>;
  // Several may listen; the one that came last is called. Until the answer goes, which may wait for a call.
  std::shared_ptr<void> listen(OnStart on_start);

  // Appends the piece, or what it falls into.
  void find_pieces(const StreamPiece& piece, std::vector<StreamPiece>& pieces);

  // By number in the list of packs.
  const std::vector<LayerStream*>& layers() const { return layer_streams_; }
  // Streams of the packs that are used, in no order.
  std::vector<std::shared_ptr<LayerStream>> streams() const;
  // Of all streams, since each was opened for this image.
  StreamStats stats() const;
  // Where damaged bytes of a pack's stream, in its order, belong: the layer streams and their ranges.
  std::vector<std::pair<LayerStream*, ByteRange>> places_of(const LayerStream& pack,
                                                            const std::vector<ByteRange>& stream_ranges) const;

 private:
  struct Group {
    const index::StartGroup* group = nullptr;
    std::once_flag triggered;
    PackSource source;                // its stream is set before `used`
    std::vector<std::uint64_t> ends;  // of the pack's ranges, in its stream; likewise
    std::vector<bool> is_read;        // by frame: whether bytes of it are read from it; likewise
    std::atomic<bool> used = false;
    StreamStats before;
    // Those of its ranges that have bytes of this part of its stream, which is not empty.
    std::span<const index::PackRange> ranges_in(ByteRange pack_range) const;
  };
  // Bytes of a layer that are in a pack, or given.
  struct Placed {
    ByteRange stream_range;
    Group* group = nullptr;
    std::uint64_t pack_offset = 0;
    const std::byte* literal = nullptr;
  };
  using Places = std::vector<Placed>;  // by offset, without overlaps
  struct Layer {
    std::vector<std::pair<ByteRange, Group*>> triggers;  // by offset
    std::uint64_t longest_trigger = 0;
    Guarded<std::shared_ptr<const Places>> places;
  };
  struct Bringing {
    Group* group = nullptr;
    bool kept = false;
    std::size_t next_frame = 0;
    std::size_t frames_at_once = 1;
    unsigned failures = 0;
  };

  void look_for_triggers(const Layer& layer, ByteRange range);
  void tell(const Group& group);
  void use_once(Group& group);
  void use(Group& group);
  void add_places(std::uint32_t layer, Places fresh, Group& group);
  void bring_loop(const std::stop_token& stop);
  void keep(Bringing& bringing);
  bool bring_next(Bringing& bringing, PiecesUnderWay& under_way);
  bool is_here_otherwise(const Group& group, ByteRange pack_range) const;

  const std::shared_ptr<const ImageSeeds> seeds_;
  const OpenPack open_;
  const KeepPack keep_;
  std::vector<LayerStream*> layer_streams_;  // by number in the list of packs
  std::unordered_map<const LayerStream*, Layer> layers_;
  std::deque<Group> groups_;
  std::atomic<bool> enabled_ = false;
  std::mutex use_mutex_;  // one group at a time becomes used
  // Outlives this while somebody listens.
  std::shared_ptr<Guarded<std::list<OnStart>>> listeners_ = std::make_shared<Guarded<std::list<OnStart>>>();

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Bringing> bringing_;             // the last one first
  std::shared_ptr<PiecesUnderWay> under_way_;  // another after each failure
  std::jthread thread_;
};

// A device of the tree whose bytes may come from packs.
using PackedFile = DividedFile<ImagePacks>;

}  // namespace varve::fuse
