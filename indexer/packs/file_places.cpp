#include "indexer/packs/file_places.h"

#include <algorithm>
#include <map>

#include "core/index/merge/bytecode.h"

namespace varve::indexer {

std::vector<std::uint32_t> first_places(const std::vector<oci::Descriptor>& layers) {
  std::map<Digest, std::uint32_t> first;
  std::vector<std::uint32_t> places;
  for (const auto& layer : layers)
    places.push_back(first.try_emplace(layer.digest, std::uint32_t(places.size())).first->second);
  return places;
}

FilePlaces::FilePlaces(const index::FlatTree& tree, const std::vector<std::uint32_t>& first_places)
    : tree_(tree), first_places_(first_places) {
  for (const auto& [path, file] : tree.entries) {
    if (file.type != FileType::kRegular || !file.is_first_name()) continue;
    for (const auto& run : file.runs)
      if (run.run.length != 0) places_.push_back(place_of(path, file, run));
  }
  const auto order = [](const FilePlace& place) {
    return std::pair(place.content.layer, place.content.stream_range.offset);
  };
  std::ranges::stable_sort(places_, {}, order);
  // A layer that the image repeats may show the same content under two names: by the first one it is known.
  const auto same = [&](const FilePlace& a, const FilePlace& b) { return order(a) == order(b); };
  places_.erase(std::unique(places_.begin(), places_.end(), same), places_.end());
}

FilePlace FilePlaces::place_of(const std::string& path, const index::FlatEntry& file, const index::TreeRun& run) const {
  return {.content = {first_places_.at(run.layer), {.offset = run.run.stream_offset, .length = run.run.length}},
          .file_offset = run.run.file_offset,
          .path = &path,
          .file = &file};
}

std::vector<FilePlace>::const_iterator FilePlaces::first_behind(std::uint32_t layer,
                                                                std::uint64_t stream_offset) const {
  return std::ranges::upper_bound(places_, std::pair(layer, stream_offset), {}, [](const FilePlace& place) {
    return std::pair(place.content.layer, place.padded_end());
  });
}

const FilePlace* FilePlaces::at(std::uint32_t layer, std::uint64_t stream_offset) const {
  const auto found = first_behind(layer, stream_offset);
  return found != places_.end() && found->content.layer == layer && found->content.stream_range.offset <= stream_offset
             ? &*found
             : nullptr;
}

std::vector<FilePlaces::Piece> FilePlaces::pieces(const PackRange& range) const {
  std::vector<Piece> pieces;
  auto at = range.stream_range.offset;
  for (auto place = first_behind(range.layer, at); place != places_.end() && place->content.layer == range.layer &&
                                                   place->content.stream_range.offset < range.stream_range.end();
       ++place) {
    const auto begin = std::max(at, place->content.stream_range.offset);
    const auto end = std::min(place->padded_end(), range.stream_range.end());
    if (begin >= end) continue;  // runs of one file may share a block
    pieces.push_back({{range.layer, {.offset = begin, .length = end - begin}}, &*place});
    at = end;
  }
  return pieces;
}

std::vector<FilePlace> FilePlaces::runs_of(const std::string& path) const {
  const auto* file = tree_.find_regular(path);
  if (file == nullptr) return {};
  std::vector<FilePlace> runs;
  for (const auto& run : file->runs) runs.push_back(place_of(path, *file, run));
  return runs;
}

std::vector<PackRange> take_out_times(std::vector<PackRange>& ranges, const FilePlaces& places) {
  StreamRanges times;
  for (const auto& range : ranges) {
    for (const auto& [piece, place] : places.pieces(range)) {
      if (place->file_offset != 0 || place->content.stream_range.length < index::kBytecodeHeadBytes) continue;
      if (index::source_of_bytecode(*place->path).empty()) continue;
      times.add({piece.layer,
                 {.offset = place->content.stream_range.offset + index::kBytecodeTimeOffset,
                  .length = index::kBytecodeHeadBytes - index::kBytecodeTimeOffset}});
    }
  }
  std::vector<PackRange> left, taken;
  for (const auto& range : ranges) {
    for (const auto& piece : times.without(range)) append_joined(left, piece);
    for (const auto& piece : times.within(range)) taken.push_back(piece);
  }
  std::ranges::sort(taken, {}, &PackRange::place);
  ranges = std::move(left);
  return taken;
}

}  // namespace varve::indexer
