#pragma once
// What the readers of one mount touch first: the making of a profile. Read-ahead and prefetch lie below and are not
// seen; the kernel's own read-ahead is.
#include <memory>
#include <optional>

#include "core/base/clock.h"
#include "core/base/threads/guarded.h"
#include "core/index/format/profile.h"
#include "fuse/mount/stream_file.h"

namespace varve::fuse {

// Safe to use from any thread.
class ReadRecorder {
 public:
  explicit ReadRecorder(const Clock& clock = Clock::system()) : clock_(clock) {}
  void note(const LayerStream& layer, ByteRange stream_range);
  // What was read so far. Its time begins with the first read.
  index::Profile profile();

 private:
  struct State {
    std::optional<Clock::TimePoint> first_read;
    index::ProfileBuilder builder;
  };
  const Clock& clock_;
  Guarded<State> state_;
};

// A file whose reads are noted.
class RecordedFile final : public StreamFile {
 public:
  RecordedFile(std::shared_ptr<StreamFile> file, std::shared_ptr<ReadRecorder> recorder)
      : file_(std::move(file)), recorder_(std::move(recorder)) {}
  std::uint64_t size() const override { return file_->size(); }
  void find_pieces(ByteRange range, std::uint64_t into, std::vector<StreamPiece>& pieces) const override;

 private:
  std::shared_ptr<StreamFile> file_;
  std::shared_ptr<ReadRecorder> recorder_;
};

}  // namespace varve::fuse
