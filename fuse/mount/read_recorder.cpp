#include "fuse/mount/read_recorder.h"

#include <algorithm>

namespace varve::fuse {

void ReadRecorder::note(const LayerStream& layer, ByteRange stream_range) {
  const auto& map = layer.map();
  if (stream_range.offset >= map.stream_bytes) return;  // the padding of a last block
  stream_range.length = std::min(stream_range.length, map.stream_bytes - stream_range.offset);
  const auto now = clock_.now();
  state_.with([&](State& state) {
    if (!state.first_read) state.first_read = now;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - *state.first_read).count();
    state.builder.touch(map.layer_digest, stream_range, std::uint64_t(std::max<std::int64_t>(ms, 0)));
  });
}

index::Profile ReadRecorder::profile() {
  return state_.with([](State& state) { return state.builder.profile(); });
}

void RecordedFile::find_pieces(ByteRange range, std::uint64_t into, std::vector<StreamPiece>& pieces) const {
  const auto before = pieces.size();
  file_->find_pieces(range, into, pieces);
  for (auto i = before; i < pieces.size(); ++i)
    recorder_->note(*pieces[i].stream, {.offset = pieces[i].stream_offset, .length = pieces[i].length});
}

}  // namespace varve::fuse
