#include "core/index/opened_image.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"

namespace varve::index {
namespace {

// Content that is being put together from its runs.
struct PartlyRead {
  std::string path;
  Bytes content;
  std::size_t runs_left = 0;
};

struct WantedRun {
  ByteRange stream_range;
  PartlyRead* file = nullptr;
  std::uint64_t file_offset = 0;
};

// In stream order, so that each span is fetched once and a content is complete soon after it began.
void read_layer(ContentReader& reader, std::uint32_t layer, std::vector<WantedRun>& wanted, const FlatTree& tree,
                const OnContent& got) {
  std::ranges::stable_sort(wanted, {}, [](const WantedRun& run) { return run.stream_range.offset; });
  std::vector<ByteRange> ranges;
  for (const auto& run : wanted) ranges.push_back(run.stream_range);
  std::vector<std::uint64_t> done(wanted.size());
  reader.read_ranges(layer, ranges, [&](std::size_t number, ByteView part) {
    const auto& run = wanted[number];
    auto& file = *run.file;
    if (file.content.empty()) file.content.resize(tree.find_regular(file.path)->size);
    std::ranges::copy(part, file.content.begin() + std::ptrdiff_t(run.file_offset + done[number]));
    done[number] += part.size();
    if (done[number] == run.stream_range.length && --file.runs_left == 0)
      got(file.path, std::exchange(file.content, {}));
  });
}

Bytes read_range(ContentReader& reader, const FlatEntry& file, ByteRange range, const std::string& path) {
  if (!range.fits_in(file.size))
    fail<CorruptData>("{:.300}: {}+{} is outside the file", path, range.offset, range.length);
  Bytes bytes(range.length);
  for (const auto& [layer, run] : file.runs) {
    const auto begin = std::max(range.offset, run.file_offset);
    const auto end = std::min(range.end(), run.file_offset + run.length);
    if (begin >= end) continue;
    auto to = bytes.begin() + std::ptrdiff_t(begin - range.offset);
    reader.read_ranges(layer, {{run.stream_offset + (begin - run.file_offset), end - begin}},
                       [&](std::size_t, ByteView part) { to = std::ranges::copy(part, to).out; });
  }
  return bytes;
}

std::vector<std::uint64_t> stream_bytes_of(const LoadedIndex& index) {
  std::vector<std::uint64_t> bytes;
  for (const auto& map : index.maps) bytes.push_back(map->stream_bytes);
  return bytes;
}

}  // namespace

OpenedImage::OpenedImage(LocalIndex local, oci::Image image, IndexPlace place)
    : OpenedImage(local, image, load_index(local, image, place)) {}

OpenedImage::OpenedImage(LocalIndex local, oci::Image image, LoadedIndex index)
    : local_(std::move(local)),
      image_(std::move(image)),
      index_(std::move(index)),
      facts_(facts_of(image_, stream_bytes_of(index_), true)),
      contents_(image_, index_, local_) {}

const FlatTree& OpenedImage::tree() const {
  if (!tree_) tree_ = read_flat_tree(local_, index_, image_, &entries_bytes_);
  return *tree_;
}

void OpenedImage::read(const std::vector<std::string>& paths, std::uint64_t limit_bytes, const OnContent& got) const {
  std::vector<PartlyRead> files;
  files.reserve(paths.size());
  std::map<std::uint32_t, std::vector<WantedRun>> runs;  // by layer
  for (const auto& path : paths) {
    const auto* file = tree().find_regular(path);
    if (file == nullptr || file->size > limit_bytes) {
      got(path, std::nullopt);
      continue;
    }
    if (file->runs.empty()) {
      got(path, Bytes(file->size));
      continue;
    }
    files.push_back({.path = path, .content = {}, .runs_left = file->runs.size()});
    for (const auto& [layer, run] : file->runs)
      runs[layer].push_back(
          {.stream_range = {run.stream_offset, run.length}, .file = &files.back(), .file_offset = run.file_offset});
  }
  for (auto& [layer, wanted] : runs) read_layer(contents_, layer, wanted, tree(), got);
}

void OpenedImage::read_ranges(const std::string& path, const std::function<void(const RangeReader&)>& use) const {
  const auto* file = tree().find_regular(path);
  if (file == nullptr) fail<NotFound>("{:.300}: no such regular file in {}", path, digest().to_string());
  use([&](ByteRange range) { return read_range(contents_, *file, range, path); });
}

FetchTally OpenedImage::fetched() const {
  return {.bytes = index_.loaded_bytes + entries_bytes_ + contents_.fetched_bytes(), .requests = contents_.requests()};
}

}  // namespace varve::index
