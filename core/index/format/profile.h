#pragma once
// What a start-up read of an image's layers, in the order in which it was first read: learnt from mounts, used to fetch
// it ahead. Names layers by digest and bytes by their place in the stream, so that it fits every image that has the
// layers, however they were cut into spans. On disk: docs/formats/profile.md.
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/index/format/layer_map.h"

namespace varve::index {

inline constexpr std::uint64_t kMaxProfileRanges = 1'000'000;  // of all layers together
inline constexpr std::uint64_t kMaxProfileLayers = 65'535;
inline constexpr std::uint64_t kMaxProfileRecordings = 65'535;
inline constexpr std::uint64_t kMaxProfileMs = 7ull * 24 * 3600 * 1000;
inline constexpr std::uint64_t kMaxProfileBlobBytes = 32ull << 20;  // more than kMaxProfileRanges can take

struct ProfileRange {
  std::uint32_t layer = 0;       // in Profile::layers
  ByteRange stream_range;        // not empty
  std::uint64_t ms = 0;          // after the first read; in a merged profile the median of those that have it
  std::uint32_t recordings = 1;  // in so many of the recordings
  bool operator==(const ProfileRange&) const = default;
};

struct Profile {
  std::uint32_t recordings = 1;      // it was made from
  std::vector<Digest> layers;        // in order, each once, each with ranges
  std::vector<ProfileRange> ranges;  // in the order in which they are wanted; no byte twice; times do not go back

  std::uint64_t bytes() const;  // stream side
  Bytes encode() const;
  // Accepts only what encode() writes. Throws CorruptData.
  static Profile decode(ByteView bytes, std::string_view what);
  // Throws CorruptData if a range lies outside of the image's layers, each with its map.
  void check(const std::vector<std::shared_ptr<const LayerMap>>& maps, std::string_view what) const;
  // What of it is about these layers, and lies inside them: a profile of one version of an image says much of the next.
  Profile of_layers(const std::vector<std::shared_ptr<const LayerMap>>& maps) const;
  bool operator==(const Profile&) const = default;
};

// One profile of several, the order by median position: where in a profile (counted in bytes before it) half of the
// recordings that have a piece had come to it. A profile that was merged before counts as many recordings. Pieces that
// fewer than `min_share` (0 to 1) of all recordings have are left out. The order of `profiles` does not matter. Throws
// UsageError without profiles, Unsupported beyond the limits.
Profile merge_profiles(const std::vector<Profile>& profiles, double min_share);

// Collects first touches. Not safe to use from several threads.
class ProfileBuilder {
 public:
  // What of the range is new comes last; what goes on where the last one ended makes it longer. Beyond
  // kMaxProfileRanges nothing is added: see full().
  void touch(const Digest& layer, ByteRange stream_range, std::uint64_t ms);
  bool full() const { return ranges_.size() >= kMaxProfileRanges; }
  Profile profile() const;

 private:
  void append(std::uint32_t layer, ByteRange stream_range, std::uint64_t ms);

  std::vector<Digest> digests_;  // in order of appearance; ranges_ name them by number
  std::vector<std::map<std::uint64_t, std::uint64_t>>
      touched_;  // of each: begin to end, neither overlapping nor touching
  std::map<Digest, std::uint32_t> numbers_;
  std::vector<ProfileRange> ranges_;
};

}  // namespace varve::index
