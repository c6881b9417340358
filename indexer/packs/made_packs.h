#pragma once
// For tests: packs of files that lie in memory.
#include "core/base/progress.h"
#include "indexer/packs/pack_writer.h"
#include "testing/made_files.h"

namespace varve::indexer {

inline LayerStreams streams_of(const test::MadeFiles& files) {
  return {.read =
              [&files](std::size_t layer, const std::vector<ByteRange>& ranges,
                       const index::ContentReader::RangeSink& sink) {
                for (std::size_t i = 0; i < ranges.size(); ++i) {
                  const auto bytes = files.bytes(std::uint32_t(layer), ranges[i]);
                  const auto half = bytes.size() / 2;  // in pieces, as spans give them
                  if (half != 0) sink(i, bytes.first(half));
                  sink(i, bytes.subspan(half));
                }
              },
          .can_be_entered = [](std::size_t) { return true; }};
}

inline PackRange part_of(const test::MadeFiles& files, const std::string& path, std::uint64_t offset = 0,
                         std::uint64_t length = UINT64_MAX) {
  return {files.layer_of(path), files.place(path, offset, length)};
}

struct TestWork {
  Progress progress;
  CancelFlag cancel;
  Work work() const { return {const_cast<Progress&>(progress), cancel}; }
};

}  // namespace varve::indexer
