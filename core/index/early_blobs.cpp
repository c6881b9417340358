#include "core/index/early_blobs.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "core/base/threads/parallel.h"

namespace varve::index {
namespace {

constexpr std::size_t kAtOnce = 16;

}  // namespace

EarlyBlobs::EarlyBlobs(std::shared_ptr<oci::Repository> source, std::vector<oci::Descriptor> wanted)
    : source_(std::move(source)) {
  std::uint64_t bytes = 0;
  for (auto& blob : wanted) {
    if (blob.size > kMaxBytes - bytes) continue;
    bytes += blob.size;
    all_.push_back({.blob = std::move(blob), .bytes = {}});
  }
  if (all_.empty()) return;
  thread_ = std::jthread([this] {
    try {
      parallel_for(all_.size(), kAtOnce, cancel_, [this](std::size_t i, const CancelFlag&) { fetch(all_[i]); });
    } catch (const std::exception& error) {
      log::debug("what an index begins with: {}", error.what());
    }
    const std::lock_guard guard(mutex_);
    for (auto& one : all_) one.is_over = true;
    changed_.notify_all();
  });
}

EarlyBlobs::~EarlyBlobs() { cancel_.cancel(); }

void EarlyBlobs::fetch(One& one) {
  std::optional<Bytes> bytes;
  try {
    bytes = oci::read_whole_blob(*source_, one.blob, kMaxBytes);
  } catch (const std::exception& error) {
    log::debug("what an index is said to begin with: {}", error.what());
  }
  const std::lock_guard guard(mutex_);
  one.bytes = std::move(bytes);
  one.is_over = true;
  changed_.notify_all();
}

std::optional<Bytes> EarlyBlobs::take(const oci::Descriptor& blob) {
  const auto one = std::ranges::find_if(
      all_, [&](const One& other) { return other.blob.digest == blob.digest && other.blob.size == blob.size; });
  if (one == all_.end()) return std::nullopt;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return one->is_over; });
  return std::exchange(one->bytes, std::nullopt);
}

}  // namespace varve::index
