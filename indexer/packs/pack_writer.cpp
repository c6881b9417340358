#include "indexer/packs/pack_writer.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>

#include "core/base/errors.h"
#include "core/base/threads/parallel.h"
#include "indexer/internal/frame_pool.h"

namespace varve::indexer {
namespace {

using index::kPackFrameBytes;
using index::PackLiteral;
using index::StartGroup;
using index::StartPack;
using index::StartPacks;

// So much of a layer's stream is read by one thread.
constexpr std::uint64_t kSliceBytes = 64ull << 20;
constexpr std::size_t kCopyBytes = 1 << 20;

std::filesystem::path made(std::filesystem::path dir) {
  std::filesystem::create_directories(dir);
  return dir;
}

// A frame arrives whole, so the order within it is free: by place, neighbours joined, it takes less space, in the list
// and in the blob.
std::vector<PackRange> in_frames(const std::vector<PackRange>& ordered) {
  std::vector<PackRange> laid_out, frame;
  std::uint64_t room = kPackFrameBytes;
  const auto end_frame = [&] {
    std::ranges::sort(frame, {}, &PackRange::place);
    for (const auto& range : frame) append_joined(laid_out, range);
    frame.clear();
    room = kPackFrameBytes;
  };
  for (auto [layer, left] : ordered) {
    while (left.length != 0) {
      const auto length = std::min(left.length, room);
      frame.push_back({layer, {.offset = left.offset, .length = length}});
      left = {.offset = left.offset + length, .length = left.length - length};
      if ((room -= length) == 0) end_frame();
    }
  }
  end_frame();
  return laid_out;
}

// Bytes that are read from a layer, and where they are wanted.
struct Wanted {
  PackRange from;
  std::uint64_t scratch_offset = 0;
  PackLiteral* literal = nullptr;  // if it is not null, there
};

// What one thread reads with one pass over a layer.
std::vector<std::span<const Wanted>> slices(const std::vector<Wanted>& wanted, const LayerStreams& streams) {
  std::vector<std::span<const Wanted>> found;
  for (std::size_t begin = 0, end = 0; begin < wanted.size(); begin = end) {
    const auto& [layer, first] = wanted[begin].from;
    const auto limit = streams.can_be_entered(layer) ? first.offset + kSliceBytes : index::kMaxStreamBytes;
    while (end < wanted.size() && wanted[end].from.layer == layer && wanted[end].from.stream_range.offset < limit)
      ++end;
    found.push_back(std::span(wanted).subspan(begin, end - begin));
  }
  return found;
}

void read_slice(std::span<const Wanted> slice, const LayerStreams& streams, const AtomicFile& scratch,
                const Work& work) {
  std::vector<ByteRange> ranges;
  for (const auto& one : slice) ranges.push_back(one.from.stream_range);
  std::vector<std::uint64_t> done(slice.size());
  streams.read(slice.front().from.layer, ranges, [&](std::size_t number, ByteView part) {
    const auto& one = slice[number];
    auto& at = done[number];
    if (one.literal != nullptr)
      std::ranges::copy(part, one.literal->bytes.begin() + std::ptrdiff_t(at));
    else
      pwrite_all(scratch.fd(), one.scratch_offset + at, part, "bytes of start-up packs");
    at += part.size();
    work.add(part.size());
  });
}

}  // namespace

// The streams of packs, one after the other.
struct PackWriter::Gathered {
  std::unique_ptr<AtomicFile> file;
  std::vector<std::uint64_t> begins;  // of each pack
};

LayerStreams layer_streams(const index::OpenedImage& image) {
  return {.read =
              [&image](std::size_t layer, const std::vector<ByteRange>& ranges,
                       const index::ContentReader::RangeSink& sink) {
                index::ContentReader(image.image(), image.index(), image.local()).read_ranges(layer, ranges, sink);
              },
          .can_be_entered =
              [&image](std::size_t layer) {
                return image.index().maps.at(layer)->format != index::LayerFormat::kZstdSingle;
              }};
}

PackWriter::PackWriter(LayerStreams streams, std::filesystem::path scratch_dir, unsigned jobs)
    : streams_(std::move(streams)),
      scratch_dir_(made(std::move(scratch_dir))),
      jobs_(jobs_or_cores(jobs)),
      blobs_(scratch_dir_ / "packs") {}

PackWriter::Gathered PackWriter::gather(std::vector<StartPack>& packs, const Work& work) const {
  Gathered gathered{.file = std::make_unique<AtomicFile>(scratch_dir_ / "pack-streams"), .begins = {}};
  std::vector<Wanted> wanted;
  std::uint64_t end = 0;
  for (auto& pack : packs) {
    gathered.begins.push_back(end);
    for (const auto& range : pack.ranges) {
      wanted.push_back({.from = range, .scratch_offset = end, .literal = nullptr});
      end += range.stream_range.length;
    }
    for (auto& literal : pack.literals)
      wanted.push_back({.from = {literal.layer, {.offset = literal.stream_offset, .length = literal.bytes.size()}},
                        .scratch_offset = 0,
                        .literal = &literal});
  }
  std::ranges::stable_sort(wanted, {}, [](const Wanted& one) { return one.from.place(); });
  const auto parts = slices(wanted, streams_);
  parallel_for(parts.size(), jobs_, work.cancel, [&](std::size_t part, const CancelFlag& stop) {
    read_slice(parts[part], streams_, *gathered.file, {work.progress, stop});
  });
  return gathered;
}

void PackWriter::compress(const Gathered& gathered, std::uint64_t begin, StartPack& pack, const Work& work) {
  Sha256 stream_hash, blob_hash;
  const auto blob_begin = blobs_end_;
  const auto deliver = [&](FrameBatch&& batch) {
    work.add(batch.content.size());
    stream_hash.update(batch.content);
    blob_hash.update(batch.frames);
    pwrite_all(blobs_.fd(), blobs_end_, batch.frames, "start-up packs");
    blobs_end_ += batch.frames.size();
    pack.frames.push_back({.compressed_bytes = batch.frames.size(),
                           .compressed_digest = digest_of(batch.frames),
                           .stream_digest = digest_of(batch.content)});
  };
  auto pool = make_frame_pool(codec::FrameFormat::kZstd, kPackZstdLevel, jobs_);
  const auto bytes = pack.stream_bytes();
  for (std::uint64_t at = 0; at < bytes; at += kPackFrameBytes) {
    FrameBatch batch;
    batch.content.resize(std::min(kPackFrameBytes, bytes - at));
    pread_exactly(gathered.file->fd(), begin + at, batch.content, "bytes of start-up packs");
    batch.content_ends.push_back(batch.content.size());
    pool.add(std::move(batch), deliver);
  }
  pool.drain(deliver);
  pack.stream_digest = stream_hash.finish();
  pack.blob = blob_hash.finish();
  blob_offsets_.emplace(pack.blob, blob_begin);
}

std::vector<StartPack> PackWriter::write(const std::vector<PackContent>& contents, const Work& work) {
  std::vector<StartPack> packs;
  for (const auto& content : contents) {
    auto& pack = packs.emplace_back();
    pack.ranges = in_frames(content.ranges);
    for (const auto& [layer, range] : content.literals)
      pack.literals.push_back({.layer = layer, .stream_offset = range.offset, .bytes = Bytes(range.length)});
    std::ranges::sort(pack.literals, {}, &PackLiteral::place);
    work.progress.expect(2 * pack.stream_bytes());
  }
  const auto gathered = gather(packs, work);
  for (std::size_t i = 0; i < packs.size(); ++i) compress(gathered, gathered.begins[i], packs[i], work);
  return packs;
}

void PackWriter::put(const StartPack& pack, oci::Repository& repository) const {
  const auto begin = blob_offsets_.at(pack.blob);
  repository.put_blob(pack.descriptor(), [&](ByteRange range, const oci::ByteSink& sink) {
    Bytes buffer;
    for (std::uint64_t done = 0; done < range.length; done += buffer.size()) {
      buffer.resize(std::min<std::uint64_t>(kCopyBytes, range.length - done));
      pread_exactly(blobs_.fd(), begin + range.offset + done, buffer, "start-up packs");
      sink(buffer);
    }
  });
}

std::vector<bool> PackWriter::fits(std::vector<StartPack>& packs, const Work& work) {
  for (const auto& pack : packs) work.progress.expect(pack.stream_bytes());
  const auto gathered = gather(packs, work);
  std::vector<bool> fit;
  Bytes buffer;
  for (std::size_t i = 0; i < packs.size(); ++i) {
    work.cancel.throw_if_cancelled();
    auto at = gathered.begins[i];
    const auto end = at + packs[i].stream_bytes();
    const auto is_frame = [&](const index::PackFrame& frame) {
      buffer.resize(std::min(kPackFrameBytes, end - at));
      pread_exactly(gathered.file->fd(), at, buffer, "bytes of start-up packs");
      at += buffer.size();
      return digest_of(buffer) == frame.stream_digest;
    };
    fit.push_back(std::ranges::all_of(packs[i].frames, is_frame));
  }
  return fit;
}

StartPacks list_packs(std::vector<StartGroup> groups, const std::vector<oci::Descriptor>& layers) {
  std::vector<bool> used(layers.size());
  const auto each_layer = [](StartGroup& group, const auto& use) {
    use(group.trigger.layer);
    for (auto& range : group.pack.ranges) use(range.layer);
    for (auto& literal : group.pack.literals) use(literal.layer);
  };
  for (auto& group : groups) each_layer(group, [&](std::uint32_t layer) { used.at(layer) = true; });
  StartPacks packs;
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (used[i]) packs.layers.push_back(layers[i].digest);
  std::ranges::sort(packs.layers);
  std::vector<std::uint32_t> numbers;
  for (const auto& layer : layers)
    numbers.push_back(std::uint32_t(std::ranges::lower_bound(packs.layers, layer.digest) - packs.layers.begin()));
  for (auto& group : groups) {
    each_layer(group, [&](std::uint32_t& layer) { layer = numbers[layer]; });
    std::ranges::sort(group.pack.literals, {}, &PackLiteral::place);
  }
  std::ranges::sort(groups, {}, [](const StartGroup& group) { return std::tie(group.kind, group.name); });
  packs.groups = std::move(groups);
  return packs;
}

std::vector<StartGroup> groups_by_place(const StartPacks& packs, const std::vector<oci::Descriptor>& layers) {
  std::vector<std::uint32_t> places;
  for (const auto& digest : packs.layers) {
    const auto place = std::ranges::find(layers, digest, &oci::Descriptor::digest);
    if (place == layers.end()) fail<CorruptData>("start-up packs: layer {} is none of the image's", digest.to_string());
    places.push_back(std::uint32_t(place - layers.begin()));
  }
  auto groups = packs.groups;
  for (auto& group : groups) {
    group.trigger.layer = places[group.trigger.layer];
    for (auto& range : group.pack.ranges) range.layer = places[range.layer];
    for (auto& literal : group.pack.literals) literal.layer = places[literal.layer];
  }
  return groups;
}

}  // namespace varve::indexer
