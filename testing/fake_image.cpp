#include "testing/fake_image.h"

#include "core/base/files/file.h"

namespace varve::test {

FakeImage::FakeImage(Tree made, std::vector<std::uint64_t> sizes)
    : tree(std::move(made)), layers(dir.path(), std::move(sizes)), tree_file(dir / "image.erofs") {
  layers.fill(tree);
  auto written = index::write_erofs(tree, layers.tags(), layers.stream_bytes());
  write_file_atomically(tree_file, written.bytes);
  mapping = MappedFile::open(tree_file);
  reader = std::make_unique<index::ErofsReader>(mapping.bytes(), "the tree of the test");
  ranges = std::move(written.ranges);
  std::vector<std::shared_ptr<fuse::LayerStream>> as_streams;
  for (std::size_t i = 0; i < layers.files().size(); ++i) {
    streams.push_back(std::make_shared<FakeLayerStream>(layers.files()[i], layers.stream_bytes()[i]));
    as_streams.push_back(streams.back());
    devices.push_back(std::make_shared<fuse::LayerFile>(streams.back()));
  }
  if (ranges.bytes > 0) devices.push_back(std::make_shared<fuse::RangesFile>(ranges, as_streams));
}

}  // namespace varve::test
