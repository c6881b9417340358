#include "indexer/internal/frame_pool.h"

#include <algorithm>
#include <memory>

#include "core/base/threads/parallel.h"

namespace varve::indexer {
namespace {

constexpr std::size_t kPendingPerThread = 4;

FrameBatch compress(codec::FrameEncoder& encoder, FrameBatch&& batch) {
  std::size_t begin = 0;
  for (const auto end : batch.content_ends) {
    encoder.encode(ByteView(batch.content).subspan(begin, end - begin), batch.frames);
    batch.frame_ends.push_back(batch.frames.size());
    begin = end;
  }
  return std::move(batch);
}

}  // namespace

FramePool make_frame_pool(codec::FrameFormat format, int level, unsigned jobs) {
  const auto threads = jobs_or_cores(jobs);
  return {threads, kPendingPerThread * threads, [format, level] {
            return [encoder = std::make_shared<codec::FrameEncoder>(format, level)](FrameBatch&& batch) {
              return compress(*encoder, std::move(batch));
            };
          }};
}

}  // namespace varve::indexer
