#pragma once
// For tests: the tree of everything that is hard, written as EROFS, over fake layer streams.
#include <memory>
#include <vector>

#include "core/base/files/mapped_file.h"
#include "core/index/format/erofs.h"
#include "fuse/mount/stream_file.h"
#include "testing/fake_layer_stream.h"
#include "testing/temp_dir.h"
#include "testing/trees.h"

namespace varve::test {

struct FakeImage {
  explicit FakeImage(Tree made, std::vector<std::uint64_t> sizes);
  // Everything that is hard, with a directory of so many entries.
  static FakeImage of_horrors(std::size_t many) { return FakeImage(malformed_tree(many), sizes_of_horrors()); }

  index::RangesDevice ranges;
  TempDir dir;
  Tree tree;
  FakeLayers layers;
  std::filesystem::path tree_file;
  MappedFile mapping;
  std::unique_ptr<index::ErofsReader> reader;
  std::vector<std::shared_ptr<FakeLayerStream>> streams;
  std::vector<std::shared_ptr<fuse::StreamFile>> devices;
};

}  // namespace varve::test
