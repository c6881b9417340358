#include "indexer/find_seeds.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/base/errors.h"
#include "core/base/threads/parallel.h"
#include "core/index/content_reader.h"
#include "core/index/merge/bytecode.h"
#include "core/index/unit_matcher.h"
#include "core/index/unit_table.h"

namespace varve::indexer {
namespace {

using index::SeedRange;
using index::UnitPlace;
using index::UnitTable;

// Contents of one layer as a node would know them.
class Contents {
 public:
  Contents(const index::LayerIndexBlobs& blobs, std::uint64_t stream_bytes, oci::Repository& source,
           index::LocalIndex& local)
      : Contents(read(blobs, stream_bytes, source, local), "layer entries " + blobs.entries.digest.to_string()) {}
  const UnitTable& table() const { return table_; }

 private:
  Contents(Bytes bytes, std::string_view what) : bytes_(std::move(bytes)), table_(UnitTable::decode(bytes_, what)) {}
  static Bytes read(const index::LayerIndexBlobs& blobs, std::uint64_t stream_bytes, oci::Repository& source,
                    index::LocalIndex& local) {
    const auto what = "layer entries " + blobs.entries.digest.to_string();
    const auto entries =
        index::LayerEntries::decode(local.blob(blobs.entries, source, index::kMaxLayerEntriesBytes), what);
    if (entries.layer_digest != blobs.layer_digest)
      fail<CorruptData>("{}: are of layer {}, not {}", what, entries.layer_digest.to_string(),
                        blobs.layer_digest.to_string());
    return UnitTable::make(entries, blobs.entries.digest, stream_bytes);
  }

  const Bytes bytes_;
  const UnitTable table_;
};

struct Bytecode {
  std::size_t content = 0;  // of the new layer
  std::vector<UnitPlace> tries;
};

// One layer against all of the earlier version.
class LayerSeeds {
 public:
  LayerSeeds(const UnitTable& layer, std::vector<const UnitTable*> earlier)
      : layer_(layer), matcher_(layer, std::move(earlier)) {}

  // Reads bytecode by `reader` as the layer with that number. Empty ranges: nothing is equal.
  index::SeededLayer find(index::ContentReader& reader, std::size_t number, const CancelFlag& cancel) {
    found_.layer = layer_.layer_digest();
    for (std::size_t content = 0; content < layer_.size(); ++content) {
      if (const auto place = matcher_.find(content))
        found_.ranges.push_back(matcher_.range_at(content, *place));
      else if (auto tries = matcher_.find_bytecode(content); !tries.empty())
        bytecode_.push_back({.content = content, .tries = std::move(tries)});
    }
    if (!bytecode_.empty()) compare_bytecode(reader, number, cancel);
    std::ranges::sort(found_.ranges, {}, [](const SeedRange& range) { return range.stream_range.offset; });
    join();
    return std::move(found_);
  }

 private:
  void compare_bytecode(index::ContentReader& reader, std::size_t number, const CancelFlag& cancel) {
    std::vector<ByteRange> ranges;
    for (const auto& one : bytecode_) ranges.push_back(layer_.range(one.content));
    Bytes bytes;
    reader.read_ranges(number, ranges, [&](std::size_t range, ByteView part) {
      cancel.throw_if_cancelled();
      append(bytes, part);
      if (bytes.size() != ranges[range].length) return;
      compare(bytecode_[range], bytes);
      bytes.clear();
    });
  }

  void compare(const Bytecode& one, Bytes& bytes) {
    const auto time = std::span(bytes).subspan(index::kBytecodeTimeOffset, index::kSeedLiteralBytes);
    const index::SeedLiteral literal{.stream_offset = layer_.range(one.content).offset + index::kBytecodeTimeOffset,
                                     .bytes = {time[0], time[1], time[2], time[3]}};
    for (const auto& place : one.tries) {
      const auto& table = matcher_.table(place);
      const auto old = table.bytecode(place.content);
      if (!old || !old->has_source) continue;
      // The source's size, which is beside its time, may be another, too: then more than a literal differs.
      auto as_it_was = bytes;
      if (!index::set_bytecode_source(as_it_was, old->source_seconds, old->source_bytes)) return;
      if (digest_of(as_it_was) != table.digest(place.content)) continue;
      std::ranges::copy(literal.bytes, as_it_was.begin() + std::ptrdiff_t(index::kBytecodeTimeOffset));
      if (as_it_was != bytes) continue;
      found_.ranges.push_back(matcher_.range_at(one.content, place));
      found_.literals.push_back(literal);
      return;
    }
  }

  // Pieces of one file.
  void join() {
    std::vector<SeedRange> joined;
    for (const auto& range : found_.ranges) {
      if (!joined.empty()) {
        auto& last = joined.back();
        if (last.source == range.source && last.stream_range.end() == range.stream_range.offset &&
            last.source_offset + last.stream_range.length == range.source_offset) {
          last.stream_range.length += range.stream_range.length;
          continue;
        }
      }
      joined.push_back(range);
    }
    found_.ranges = std::move(joined);
  }

  const UnitTable& layer_;
  index::UnitMatcher matcher_;
  std::vector<Bytecode> bytecode_;
  index::SeededLayer found_;
};

// Lists only sources that are used.
void number_sources(index::Seeds& seeds, const std::vector<index::SeedSource>& sources) {
  std::set<index::SeedSource> used;
  for (const auto& layer : seeds.layers)
    for (const auto& range : layer.ranges) used.insert(sources[range.source]);
  seeds.sources.assign(used.begin(), used.end());
  std::vector<std::uint32_t> numbers;
  for (const auto& source : sources)
    numbers.push_back(std::uint32_t(std::ranges::lower_bound(seeds.sources, source) - seeds.sources.begin()));
  for (auto& layer : seeds.layers)
    for (auto& range : layer.ranges) range.source = numbers[range.source];
}

}  // namespace

index::ChosenIndex choose_earlier(const oci::Image& image, index::LocalIndex& local) {
  auto chosen = index::choose_index(local, image, index::IndexPlace::kRepository);
  const auto& digest = chosen.index.found.blobs.manifest.digest;
  if (!chosen.index.judgement.vouched)
    throw trust::Untrusted(fmt::format(
        "{}: its index {} was not made here, and no key that counts has signed it, so that no other index may rest on "
        "it; first run: varve index {}",
        image.typed(), digest.to_string(), image.typed()));
  chosen.early.reset();  // what a mount begins with is not wanted
  return chosen;
}

index::Seeds find_seeds(const oci::Image& image, const index::LoadedIndex& index, const index::ChosenIndex& earlier,
                        index::LocalIndex& local, const Work& work) {
  auto& from = earlier.source ? *earlier.source : local.repository();
  std::vector<index::SeedSource> sources;
  std::vector<std::unique_ptr<Contents>> contents;
  std::set<Digest> known;
  for (const auto& blobs : earlier.index.found.blobs.layers) {
    work.cancel.throw_if_cancelled();
    if (!known.insert(blobs.layer_digest).second) continue;
    const auto map = index::read_map(local, blobs.map, from);
    sources.push_back({.layer = blobs.layer_digest, .map = blobs.map.digest, .entries = blobs.entries.digest});
    contents.push_back(std::make_unique<Contents>(blobs, map.stream_bytes, from, local));
  }
  std::vector<std::size_t> fresh;
  for (std::size_t i = 0; i < index.blobs.layers.size(); ++i)
    if (known.insert(index.blobs.layers[i].layer_digest).second) fresh.push_back(i);

  std::vector<index::SeededLayer> found(fresh.size());
  std::vector<const UnitTable*> tables;
  for (const auto& one : contents) tables.push_back(&one->table());
  parallel_for(fresh.size(), jobs_or_cores(0), work.cancel, [&](std::size_t i, const CancelFlag& stop) {
    const auto number = fresh[i];
    const Contents layer(index.blobs.layers[number], index.maps[number]->stream_bytes, *index.source, local);
    index::ContentReader reader(image, index, local);
    found[i] = LayerSeeds(layer.table(), tables).find(reader, number, stop);
  });
  index::Seeds seeds;
  for (auto& layer : found)
    if (!layer.ranges.empty()) seeds.layers.push_back(std::move(layer));
  std::ranges::sort(seeds.layers, {}, &index::SeededLayer::layer);
  number_sources(seeds, sources);
  return seeds;
}

}  // namespace varve::indexer
