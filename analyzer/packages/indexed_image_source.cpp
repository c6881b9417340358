#include <algorithm>
#include <utility>

#include "analyzer/packages/image_facts.h"
#include "analyzer/packages/image_source.h"
#include "analyzer/packages/layer_stack.h"
#include "core/base/errors.h"
#include "core/index/content_reader.h"
#include "core/index/merge/flat_tree.h"

namespace varve::packages {
namespace {

// Content that is being put together from its runs.
struct PartlyRead {
  std::string path;
  Bytes content;
  std::size_t runs_left = 0;
};

struct WantedRun {
  ByteRange stream_range;
  std::size_t file = 0;
  std::uint64_t file_offset = 0;
};

class IndexedImageSource final : public ImageSource {
 public:
  IndexedImageSource(const oci::Image& image, const index::LoadedIndex& index, index::LocalIndex& local,
                     oci::Repository& windows)
      : image_(image), reader_(image, index, windows) {
    loaded_bytes_ = index.loaded_bytes;
    auto layers = index::read_layer_entries(local, index, image, &loaded_bytes_);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      stack_.add(std::move(layers[layer]), CompressedShares(*index.maps[layer]));
      stream_bytes_.push_back(index.maps[layer]->stream_bytes);
    }
    stack_.finish();
  }

  const std::map<std::string, SourceFile, std::less<>>& files() const override { return stack_.files(); }

  void read(const std::vector<std::string>& paths, std::uint64_t limit_bytes,
            const std::function<void(const std::string&, std::optional<Bytes>)>& got) const override {
    std::vector<PartlyRead> files;
    std::map<std::uint32_t, std::vector<WantedRun>> runs;  // by layer
    for (const auto& path : paths) {
      const auto* inode = stack_.find_regular(path);
      if (inode == nullptr || inode->size > limit_bytes) {
        got(path, std::nullopt);
        continue;
      }
      if (inode->runs.empty()) {
        got(path, Bytes(inode->size));
        continue;
      }
      for (const auto& [layer, run] : inode->runs)
        runs[layer].push_back(
            {.stream_range = {run.stream_offset, run.length}, .file = files.size(), .file_offset = run.file_offset});
      files.push_back({.path = path, .content = {}, .runs_left = inode->runs.size()});
    }
    for (auto& [layer, wanted] : runs) read_layer(layer, wanted, files, got);
  }

  void read_ranges(const std::string& path, const std::function<void(const RangeReader&)>& use) const override {
    const auto* inode = stack_.find_regular(path);
    if (inode == nullptr) fail<NotFound>("{:.300}: no such regular file in {}", path, image_.digest().to_string());
    use([&](ByteRange range) { return read_range(*inode, range, path); });
  }

  std::vector<SourceLayer> layers() const override { return layers_of(image_, stream_bytes_); }
  std::vector<HiddenFile> hidden() const override { return stack_.hidden(); }
  std::optional<Digest> image() const override { return image_.digest(); }
  std::map<std::string, std::string> environment() const override { return environment_of(image_); }
  std::string architecture() const override { return image_.config.platform.normalised().architecture; }
  FetchTally fetched() const override {
    return {.bytes = loaded_bytes_ + reader_.fetched_bytes(), .requests = reader_.requests()};
  }

 private:
  // In stream order, so that each span is fetched once and a content is complete soon after it began.
  void read_layer(std::uint32_t layer, std::vector<WantedRun>& wanted, std::vector<PartlyRead>& files,
                  const std::function<void(const std::string&, std::optional<Bytes>)>& got) const {
    std::ranges::stable_sort(wanted, {}, [](const WantedRun& run) { return run.stream_range.offset; });
    std::vector<ByteRange> ranges;
    for (const auto& run : wanted) ranges.push_back(run.stream_range);
    std::vector<std::uint64_t> done(wanted.size());
    reader_.read_ranges(layer, ranges, [&](std::size_t number, ByteView part) {
      const auto& run = wanted[number];
      auto& file = files[run.file];
      if (file.content.empty()) file.content.resize(stack_.find_regular(file.path)->size);
      std::ranges::copy(part, file.content.begin() + std::ptrdiff_t(run.file_offset + done[number]));
      done[number] += part.size();
      if (done[number] == run.stream_range.length && --file.runs_left == 0)
        got(file.path, std::exchange(file.content, {}));
    });
  }

  Bytes read_range(const index::TreeInode& inode, ByteRange range, const std::string& path) const {
    if (!range.fits_in(inode.size))
      fail<CorruptData>("{:.300}: {}+{} is outside the file", path, range.offset, range.length);
    Bytes bytes(range.length);
    for (const auto& [layer, run] : inode.runs) {
      const auto begin = std::max(range.offset, run.file_offset);
      const auto end = std::min(range.end(), run.file_offset + run.length);
      if (begin >= end) continue;
      auto to = bytes.begin() + std::ptrdiff_t(begin - range.offset);
      reader_.read_ranges(layer, {{run.stream_offset + (begin - run.file_offset), end - begin}},
                          [&](std::size_t, ByteView part) { to = std::ranges::copy(part, to).out; });
    }
    return bytes;
  }

  const oci::Image& image_;
  LayerStack stack_;
  std::vector<std::uint64_t> stream_bytes_;
  mutable index::ContentReader reader_;  // counts what it fetches
  std::uint64_t loaded_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ImageSource> open_indexed_image(const oci::Image& image, const index::LoadedIndex& index,
                                                index::LocalIndex& local, oci::Repository& windows) {
  return std::make_unique<IndexedImageSource>(image, index, local, windows);
}

}  // namespace varve::packages
