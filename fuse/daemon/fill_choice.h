#pragma once
// Whether the rest of an image is fetched though nobody asked for it. Who has read half of what a large image lacked
// here reads most of the rest, too: fetched behind him, it is here before he comes to it. Bytes of streams, without
// what is cold.
#include <cstdint>

#include "fuse/control/control_messages.h"

namespace varve::fuse {

// Less is soon read, whatever comes first.
inline constexpr std::uint64_t kFillableBytes = 256 << 20;

// What a pull would fetch.
std::uint64_t missing_bytes(const ImageStats& stats);

// `missing_at_first`: when the use of the image began. `room`: what the store may take on; three quarters of it are
// left to others.
bool most_is_read(std::uint64_t missing_at_first, std::uint64_t missing, std::uint64_t room);

}  // namespace varve::fuse
