#include "indexer/packs/carry_packs.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/index/merge/bytecode.h"
#include "core/index/publish_index.h"
#include "core/oci/copy_blob.h"

namespace varve::indexer {
namespace {

using index::StartGroup;

class PlaceMapper {
 public:
  PlaceMapper(const FilePlaces& before, const FilePlaces& after) : before_(before), after_(after) {}

  // Where the same bytes lie after, in their order; nothing if some are of no file, or of one that is another.
  std::vector<PackRange> mapped(const std::vector<PackRange>& ranges) {
    std::vector<PackRange> found;
    for (const auto& range : ranges) {
      std::uint64_t covered = 0;
      for (const auto& [piece, place] : before_.pieces(range)) {
        if (!append(found, piece, *place)) return {};
        covered += piece.stream_range.length;
      }
      if (covered != range.stream_range.length) return {};
    }
    return found;
  }

 private:
  const std::vector<FilePlace>& same_file(const FilePlace& old) {
    const auto [at, is_new] = files_.try_emplace(*old.path);
    if (!is_new) return at->second;
    auto runs = after_.runs_of(*old.path);
    if (runs.empty() || runs.front().file->size != old.file->size) return at->second;
    const bool is_same = runs.front().file->content_digest == old.file->content_digest;
    if (is_same || !index::source_of_bytecode(*old.path).empty()) at->second = std::move(runs);
    return at->second;
  }

  bool append(std::vector<PackRange>& found, const PackRange& piece, const FilePlace& old) {
    const auto& runs = same_file(old);
    auto at = piece.stream_range.offset - old.content.stream_range.offset + old.file_offset;
    const auto end = at + piece.stream_range.length;
    while (at < end) {
      // Padding is known by the content that it is behind.
      const auto run = std::ranges::find_if(runs, [&](const FilePlace& one) {
        return at >= one.file_offset && at - one.file_offset < one.padded_end() - one.content.stream_range.offset;
      });
      if (run == runs.end()) return false;
      const auto offset = run->content.stream_range.offset + (at - run->file_offset);
      const auto length = std::min(end - at, run->padded_end() - offset);
      append_joined(found, {run->content.layer, {.offset = offset, .length = length}});
      at += length;
    }
    return true;
  }

  const FilePlaces& before_;
  const FilePlaces& after_;
  std::map<std::string, std::vector<FilePlace>> files_;  // by path: its runs after; empty if it is another file
};

// Two files of the image before may be links of one after.
bool is_once(const index::StartPack& pack) {
  StreamRanges seen;
  const auto is_new = [&](const PackRange& range) {
    const bool is_seen = seen.touches(range);
    seen.add(range);
    return !is_seen;
  };
  return std::ranges::all_of(pack.ranges, is_new) &&
         std::ranges::all_of(pack.literals, [&](const index::PackLiteral& literal) {
           return is_new({literal.layer, {.offset = literal.stream_offset, .length = literal.bytes.size()}});
         });
}

std::optional<StartGroup> mapped_group(const StartGroup& group, PlaceMapper& mapper) {
  auto found = group;
  found.pack.ranges = mapper.mapped(group.pack.ranges);
  const auto trigger = mapper.mapped({group.trigger});
  if (found.pack.ranges.empty() || trigger.empty()) return std::nullopt;
  found.trigger = trigger.front();
  for (auto& literal : found.pack.literals) {
    const auto place =
        mapper.mapped({{literal.layer, {.offset = literal.stream_offset, .length = literal.bytes.size()}}});
    if (place.size() != 1) return std::nullopt;
    literal.layer = place.front().layer;
    literal.stream_offset = place.front().stream_range.offset;
  }
  return is_once(found.pack) ? std::optional(std::move(found)) : std::nullopt;
}

}  // namespace

std::vector<StartGroup> carry_groups(const std::vector<StartGroup>& groups, const FilePlaces& before,
                                     const FilePlaces& after, PackWriter& writer, const Work& work) {
  PlaceMapper mapper(before, after);
  std::vector<StartGroup> found;
  std::vector<index::StartPack> packs;
  for (const auto& group : groups) {
    auto mapped = mapped_group(group, mapper);
    if (!mapped) continue;
    packs.push_back(std::move(mapped->pack));
    found.push_back(std::move(*mapped));
  }
  const auto fit = writer.fits(packs, work);
  std::vector<StartGroup> carried;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!fit[i]) continue;
    found[i].pack = std::move(packs[i]);
    carried.push_back(std::move(found[i]));
  }
  return carried;
}

std::vector<StartGroup> carry_from(const index::OpenedImage& from, const index::OpenedImage& to,
                                   const FilePlaces& places, PackWriter& writer, const Work& work) {
  const auto& loaded = from.index();
  if (loaded.packs.empty() || !loaded.judgement.vouched) return {};
  const auto& layers = from.image().manifest.layers;
  auto groups = groups_by_place(loaded.packs, layers);
  auto carried = carry_groups(groups, FilePlaces(from.tree(), first_places(layers)), places, writer, work);
  auto& kept = to.local().repository();
  for (const auto& group : carried) {
    const auto blob = std::ranges::find(loaded.blobs.packs, group.pack.blob, &oci::Descriptor::digest);
    if (!kept.has_blob(*blob)) oci::copy_blob(*loaded.source, kept, *blob);
  }
  return carried;
}

void publish_carried(const index::OpenedImage& from, const index::OpenedImage& to,
                     const std::filesystem::path& scratch_dir, unsigned jobs, const Work& work) {
  if (from.index().packs.empty() || !to.index().packs.empty()) return;
  const auto& layers = to.image().manifest.layers;
  PackWriter writer(layer_streams(to), scratch_dir, jobs);
  auto carried = carry_from(from, to, FilePlaces(to.tree(), first_places(layers)), writer, work);
  if (carried.empty()) return;
  index::publish_packs(to.image(), to.index(), list_packs(std::move(carried), layers), to.local(),
                       *to.image().repository, work.cancel);
}

}  // namespace varve::indexer
