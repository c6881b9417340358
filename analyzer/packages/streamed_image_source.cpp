#include <algorithm>
#include <utility>

#include "analyzer/packages/image_source.h"
#include "analyzer/packages/record_files.h"
#include "core/base/errors.h"
#include "core/codec/blob_decoder.h"
#include "core/index/format/layer_entry_reader.h"

namespace varve::packages {
namespace {

constexpr std::uint64_t kMaxKeptFileBytes = 32u << 20;
// Both sides are compared at places at least so far apart in the stream; a distribution of small files has a few
// hundred kilobytes in all. A repository hands on as much of a blob at once as it likes.
constexpr std::uint64_t kPlaceBytes = 64 * 1024;
constexpr std::size_t kFedBytes = 16 * 1024;  // compressed

using Place = std::pair<std::uint32_t, std::uint32_t>;  // layer, entry

// Keeps contents of entries, by their numbers, while a layer streams by.
class ContentKeeper final : public index::EntryObserver {
 public:
  using Wants = std::function<bool(const codec::TarEntry& entry, std::uint32_t number)>;
  using Got = std::function<void(std::uint32_t number, Bytes content)>;
  ContentKeeper(Wants wants, Got got) : wants_(std::move(wants)), got_(std::move(got)) {}

  void begin(const codec::TarEntry& entry) override {
    keeping_ = entry.type == FileType::kRegular && entry.size != 0 && wants_(entry, number_);
    if (!keeping_) return;
    content_.assign(entry.size, std::byte());
    runs_ = entry.runs;
    run_ = 0;
    in_run_ = 0;
  }

  void content(ByteView bytes) override {
    while (keeping_ && !bytes.empty() && run_ < runs_.size()) {
      const auto& run = runs_[run_];
      const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), run.length - in_run_));
      std::ranges::copy(part, content_.begin() + std::ptrdiff_t(run.file_offset + in_run_));
      in_run_ += part.size();
      bytes = bytes.subspan(part.size());
      if (in_run_ == run.length) {
        ++run_;
        in_run_ = 0;
      }
    }
  }

  void end() override {
    if (keeping_) got_(number_, std::exchange(content_, {}));
    ++number_;
  }

 private:
  Wants wants_;
  Got got_;
  std::uint32_t number_ = 0;
  bool keeping_ = false;
  Bytes content_;
  std::vector<ContentRun> runs_;
  std::size_t run_ = 0;
  std::uint64_t in_run_ = 0;
};

class StreamedImageSource final : public index::FileSource {
 public:
  StreamedImageSource(oci::Image image, const Work& work) : image_(std::move(image)), work_(work) {
    for (const auto& layer : image_.manifest.layers) work_.progress.expect(layer.size);
    index::FlatTreeMaker maker;
    std::vector<std::uint64_t> stream_bytes;
    for (std::uint32_t layer = 0; layer < image_.manifest.layers.size(); ++layer)
      stream_bytes.push_back(add_layer(layer, maker));
    tree_ = maker.finish();
    facts_ = index::facts_of(image_, stream_bytes, false);
  }

  const index::FlatTree& tree() const override { return tree_; }
  const index::SourceFacts& facts() const override { return facts_; }

  void read(const std::vector<std::string>& paths, std::uint64_t limit_bytes,
            const index::OnContent& got) const override {
    std::map<std::uint32_t, std::map<std::uint32_t, std::vector<std::string>>> unread;  // layer -> entry -> its names
    for (const auto& path : paths) {
      const auto* file = tree_.find_regular(path);
      if (file == nullptr || file->size > limit_bytes) {
        got(path, std::nullopt);
      } else if (file->size == 0) {
        got(path, Bytes());
      } else if (const auto kept = kept_.find({file->layer, file->entry}); kept != kept_.end()) {
        got(path, kept->second);
      } else {
        unread[file->layer][file->entry].push_back(path);
      }
    }
    for (const auto& [layer, entries] : unread) read_again(layer, entries, got);
  }

  void read_ranges(const std::string& path, const std::function<void(const index::RangeReader&)>&) const override {
    if (tree_.find_regular(path) == nullptr)
      fail<NotFound>("{:.300}: no such regular file in {}", path, image_.digest().to_string());
    fail<Unsupported>("{:.300}: an image without index cannot be read in places; run: varve index {}", path,
                      image_.typed());
  }

  index::FetchTally fetched() const override { return fetched_; }

 private:
  std::string what(std::uint32_t layer) const { return "layer " + image_.manifest.layers[layer].digest.to_string(); }

  // Returns the stream's bytes.
  std::uint64_t add_layer(std::uint32_t layer, index::FlatTreeMaker& maker) {
    ContentKeeper keeper(
        [&](const codec::TarEntry& entry, std::uint32_t) {
          return entry.size <= kMaxKeptFileBytes && entry.size <= kMaxKeptBytes - kept_bytes_ &&
                 is_record_name(entry.name);
        },
        [&](std::uint32_t number, Bytes content) {
          kept_bytes_ += content.size();
          kept_.emplace(Place{layer, number}, std::move(content));
        });
    index::LayerEntryReader reader(what(layer), &keeper);
    index::CompressedShares shares;
    const auto bytes = stream(layer, reader, &shares);
    maker.add(
        {.layer_digest = image_.manifest.layers[layer].digest, .entries = reader.take_entries(), .has_elf_facts = true},
        shares);
    return bytes;
  }

  // Names as tars write them may begin with "./" or "/".
  static bool is_record_name(std::string_view name) {
    while (name.starts_with("./") || name.starts_with('/')) name.remove_prefix(name.starts_with('/') ? 1 : 2);
    return is_record_file(name);
  }

  void read_again(std::uint32_t layer, const std::map<std::uint32_t, std::vector<std::string>>& entries,
                  const index::OnContent& got) const {
    ContentKeeper keeper([&](const codec::TarEntry&, std::uint32_t number) { return entries.contains(number); },
                         [&](std::uint32_t number, const Bytes& content) {
                           for (const auto& path : entries.at(number)) got(path, content);
                         });
    work_.progress.expect(image_.manifest.layers[layer].size);
    index::LayerEntryReader reader(what(layer), &keeper);
    stream(layer, reader, nullptr);
  }

  // Returns the stream's bytes.
  std::uint64_t stream(std::uint32_t layer, index::LayerEntryReader& reader, index::CompressedShares* shares) const {
    const auto& blob = image_.manifest.layers[layer];
    codec::BlobDecoder decoder(what(layer), index::kMaxStreamBytes, [&](ByteView bytes) { reader.feed(bytes); });
    std::uint64_t compressed_bytes = 0;
    std::uint64_t last_place = 0;
    ++fetched_.requests;
    image_.repository->read_blob(blob, {.offset = 0, .length = blob.size}, [&](ByteView bytes) {
      work_.cancel.throw_if_cancelled();
      fetched_.bytes += bytes.size();
      work_.progress.add(bytes.size());
      while (!bytes.empty()) {
        const auto fed = bytes.first(std::min(bytes.size(), kFedBytes));
        bytes = bytes.subspan(fed.size());
        decoder.feed(fed);
        compressed_bytes += fed.size();
        if (shares != nullptr && decoder.stream_bytes() - last_place >= kPlaceBytes) {
          last_place = decoder.stream_bytes();
          shares->add(last_place, compressed_bytes);
        }
      }
    });
    if (compressed_bytes != blob.size)
      fail<CorruptData>("{}: {} bytes, expected {}", what(layer), compressed_bytes, blob.size);
    decoder.finish();
    reader.finish();
    if (shares != nullptr) shares->add(decoder.stream_bytes(), compressed_bytes);
    return decoder.stream_bytes();
  }

  oci::Image image_;
  const Work work_;
  index::FlatTree tree_;
  index::SourceFacts facts_;
  std::map<Place, Bytes> kept_;
  std::uint64_t kept_bytes_ = 0;
  mutable index::FetchTally fetched_;
};

}  // namespace

std::unique_ptr<index::FileSource> read_image(oci::Image image, const Work& work) {
  return std::make_unique<StreamedImageSource>(std::move(image), work);
}

}  // namespace varve::packages
