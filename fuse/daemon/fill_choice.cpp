#include "fuse/daemon/fill_choice.h"

namespace varve::fuse {

std::uint64_t missing_bytes(const ImageStats& stats) {
  const auto wanted = stats.image_stream_bytes - stats.cold_bytes;
  const auto here = stats.present_bytes - stats.cold_present_bytes;
  return wanted > here ? wanted - here : 0;
}

bool most_is_read(std::uint64_t missing_at_first, std::uint64_t missing, std::uint64_t room) {
  return missing_at_first >= kFillableBytes && missing > 0 && missing <= missing_at_first / 2 && missing <= room / 4;
}

}  // namespace varve::fuse
