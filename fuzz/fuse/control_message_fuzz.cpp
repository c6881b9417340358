// The control socket, both ways: whatever comes is refused, or a message that is the same when it was sent once more.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "fuse/control/control_protocol.h"

namespace {

using namespace varve;
using namespace varve::fuse;

template <typename Message>
void try_message(const JsonValue& line) {
  try {
    const auto message = read_message<Message>(line);
    const auto sent = nlohmann::json(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const auto again = read_message<Message>(parse_control_line(sent, "again"));
    if (nlohmann::json(again).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) != sent) std::abort();
  } catch (const Error&) {
  }
}

void try_image(const JsonValue& line) {
  try {
    const auto spec = read_image_spec(line);
    if (spec.registry.max_attempts < 1 || spec.registry.stall_timeout_ms < 1) std::abort();
  } catch (const Error&) {
  }
}

void try_ranges(const JsonValue& line) {
  try {
    std::size_t ranges = 0;
    for (const auto& layer : read_layer_ranges(line)) ranges += layer.ranges.size();
    if (ranges > kMaxMessageRanges) std::abort();
  } catch (const Error&) {
  }
}

void try_error(const JsonValue& line) {
  try {
    throw_from_json(line);
  } catch (const std::exception&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto line = parse_control_line(std::string_view(reinterpret_cast<const char*>(data), size), "input");
    try_image(line);
    try_ranges(line);
    try_error(line);
    try_message<DaemonStatus>(line);
    try_message<MountStatus>(line);
    try_message<StopResult>(line);
    try_message<MountOptions>(line);
    try_message<MountResult>(line);
    try_message<AcquiredImage>(line);
    try_message<LookedUpImage>(line);
    try_message<HeldTree>(line);
    try_message<PullResult>(line);
    try_message<RemovedImage>(line);
    try_message<VerifyResult>(line);
  } catch (const Error&) {
  }
  return 0;
}
