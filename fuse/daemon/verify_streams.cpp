#include "fuse/daemon/verify_streams.h"

#include <future>

#include "core/base/errors.h"
#include "core/base/log.h"

namespace varve::fuse {

bool fetch_anew(LayerStream& stream, ByteRange range) {
  std::promise<void> fetched;
  stream.ensure(range, Priority::kReader, [&](std::exception_ptr error) {
    if (error)
      fetched.set_exception(error);
    else
      fetched.set_value();
  });
  try {
    fetched.get_future().get();
    return true;
  } catch (const std::exception& error) {
    log::error("verify: a damaged span of a mounted layer could not be fetched anew, the next verify tries again: {}",
               error.what());
    return false;
  }
}

VerifyResult verify_streams(const std::vector<std::shared_ptr<LayerStream>>& streams, const OnDamaged& on_damaged,
                            const Work& work) {
  for (const auto& stream : streams) work.progress.expect(stream->stats().present_bytes);
  VerifyResult result;
  for (const auto& stream : streams) {
    work.cancel.throw_if_cancelled();
    const auto verified = stream->verify();
    work.progress.add(verified.checked_bytes);
    result.checked_bytes += verified.checked_bytes;
    const auto& layer = stream->map().layer_digest;
    for (const auto& bad : verified.bad) {
      log::error("verify: layer {} at {}+{} is damaged in the store; dropped, it will be fetched anew",
                 layer.to_string(), bad.offset, bad.length);
      result.bad.push_back({.layer = layer, .stream_offset = bad.offset, .length = bad.length});
    }
    if (verified.bad.empty() || !on_damaged(*stream, verified.bad)) continue;
    for (const auto& bad : verified.bad) fetch_anew(*stream, bad);
  }
  return result;
}

}  // namespace varve::fuse
