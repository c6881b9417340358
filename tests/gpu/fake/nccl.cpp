// libnccl.so.2: sums over the devices of one process.
#include <memory>
#include <vector>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Result : int { kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5 };

struct Part {  // one device's part in a sum
  const void* send;
  void* receive;
  std::size_t count;
};
struct Ring {
  std::vector<std::unique_ptr<Part>> parts;  // by rank; null: not here yet
};
struct Communicator {
  std::shared_ptr<Ring> ring;
  std::size_t rank;
};

int groups = 0;                            // NOLINT: depth, of the library
std::vector<std::shared_ptr<Ring>> begun;  // NOLINT: rings with parts, in the open group

void sum(const Ring& ring, Wrong how) {
  std::vector<float> total(ring.parts[0]->count);
  for (const auto& part : ring.parts) {
    const auto* const values = static_cast<const float*>(part->send);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += values[i];
  }
  // Wrong on the last device only: a check of the first one's result is none.
  for (const auto& part : ring.parts)
    give(part == ring.parts.back() ? how : Wrong::kNo, static_cast<float*>(part->receive), total.data(), total.size());
}

int finish(Ring& ring) {
  const auto how = wrong("nccl");
  for (const auto& part : ring.parts) {
    if (!part || part->count != ring.parts[0]->count) return kInvalidUsage;  // the real one waits for ever
  }
  sum(ring, how);
  for (auto& part : ring.parts) part.reset();
  return kSuccess;
}

}  // namespace

FAKE_VERSION(ncclGetVersion, 22703)

FAKE_API const char* ncclGetErrorString(int code) {
  return code == kSuccess        ? "no error"
         : code == 2             ? "unhandled system error (run with NCCL_DEBUG=INFO for details)"
         : code == kInvalidUsage ? "invalid usage"
                                 : "internal error";
}

FAKE_API int ncclCommInitAll(Communicator** communicators, int count, const int* devices) {
  if (const int code = enter("ncclCommInitAll")) return code;
  if (count < 1 || count > number("devices", 1)) return kInvalidArgument;
  auto ring = std::make_shared<Ring>();
  ring->parts.resize(std::size_t(count));
  for (int rank = 0; rank < count; ++rank) {
    if (devices && (devices[rank] < 0 || devices[rank] >= number("devices", 1))) return kInvalidArgument;
    communicators[rank] = new Communicator{.ring = ring, .rank = std::size_t(rank)};
  }
  return kSuccess;
}

FAKE_API int ncclCommDestroy(Communicator* communicator) {
  if (const int code = enter("ncclCommDestroy")) return code;
  delete communicator;
  return kSuccess;
}

FAKE_API int ncclCommGetAsyncError(Communicator*, int* error) {
  if (const int code = enter("ncclCommGetAsyncError")) return code;
  *error = kSuccess;
  return kSuccess;
}

FAKE_API int ncclAllReduce(const void* send, void* receive, std::size_t count, int type, int operation,
                           Communicator* communicator, void*) {
  if (const int code = enter("ncclAllReduce")) return code;
  if (operation != 0 || type != 7 || !count) return kInvalidArgument;  // sums of floats only
  auto& ring = communicator->ring;
  auto& part = ring->parts[communicator->rank];
  if (part) return kInvalidUsage;
  part = std::make_unique<Part>(Part{.send = on_device(send, "ncclAllReduce: send"),
                                     .receive = on_device(receive, "ncclAllReduce: receive"),
                                     .count = count});
  if (groups == 0) return finish(*ring);
  if (begun.empty() || begun.back() != ring) begun.push_back(ring);
  return kSuccess;
}

FAKE_API int ncclGroupStart() {
  if (const int code = enter("ncclGroupStart")) return code;
  ++groups;
  return kSuccess;
}

FAKE_API int ncclGroupEnd() {
  if (const int code = enter("ncclGroupEnd")) return code;
  if (groups == 0) return kInvalidUsage;
  if (--groups) return kSuccess;
  int result = kSuccess;
  for (const auto& ring : begun) {
    if (const int code = finish(*ring)) result = code;
  }
  begun.clear();
  return result;
}

}  // namespace varve::gpu::fake
