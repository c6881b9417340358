#pragma once
// An image opened together with its index: its tree, and the content of its files, fetched by the spans that hold it.
#include <optional>

#include "core/index/content_reader.h"
#include "core/index/file_source.h"

namespace varve::index {

// What needs the tree of names alone (ls, cat, a mount) never loads the merged one with its digests. Not shared between
// threads, but for image() and index().
class OpenedImage final : public FileSource {
 public:
  // Throws what load_index() throws: NotFound with what to do if there is no index.
  OpenedImage(LocalIndex local, oci::Image image, IndexPlace place = IndexPlace::kHere);
  OpenedImage(LocalIndex local, oci::Image image, LoadedIndex index);
  OpenedImage(const OpenedImage&) = delete;
  OpenedImage& operator=(const OpenedImage&) = delete;

  const oci::Image& image() const { return image_; }
  const Digest& digest() const { return image_.digest(); }
  const LoadedIndex& index() const { return index_; }
  LocalIndex& local() const { return local_; }
  ContentReader& contents() const { return contents_; }

  // Read from the layer entries at the first call. Throws as the index's readers do.
  const FlatTree& tree() const override;
  const SourceFacts& facts() const override { return facts_; }
  void read(const std::vector<std::string>& paths, std::uint64_t limit_bytes, const OnContent& got) const override;
  void read_ranges(const std::string& path, const std::function<void(const RangeReader&)>& use) const override;
  FetchTally fetched() const override;

 private:
  mutable LocalIndex local_;
  oci::Image image_;
  LoadedIndex index_;
  SourceFacts facts_;
  mutable ContentReader contents_;  // counts what it fetches
  mutable std::optional<FlatTree> tree_;
  mutable std::uint64_t entries_bytes_ = 0;  // fetched for the tree
};

}  // namespace varve::index
