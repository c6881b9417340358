#include "testing/scripted_repository.h"

#include <algorithm>

#include "core/base/errors.h"

namespace varve::test {
namespace {

constexpr std::size_t kStepBytes = 16 * 1024;  // as a network hands bytes over

}  // namespace

oci::Descriptor ScriptedRepository::serve(Bytes content) {
  oci::Descriptor descriptor{.media_type = "application/octet-stream",
                             .digest = digest_of(content),
                             .size = content.size(),
                             .artifact_type = {},
                             .annotations = {},
                             .urls = {},
                             .platform = {}};
  const std::lock_guard lock(mutex_);
  blobs_[descriptor.digest] = std::move(content);
  return descriptor;
}

void ScriptedRepository::remove(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  blobs_.erase(digest);
}

void ScriptedRepository::flip(const Digest& digest, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  flipped_[digest] = offset;
}

void ScriptedRepository::mend() {
  const std::lock_guard lock(mutex_);
  flipped_.clear();
}

void ScriptedRepository::fail_next(int count, Failure failure, std::uint64_t after_bytes) {
  const std::lock_guard lock(mutex_);
  failures_left_ = count;
  failure_ = failure;
  failure_after_ = after_bytes;
}

void ScriptedRepository::close_gate(std::optional<Digest> digest) {
  const std::lock_guard lock(mutex_);
  gate_closed_ = true;
  gated_ = digest;
}

void ScriptedRepository::open_gate() {
  const std::lock_guard lock(mutex_);
  gate_closed_ = false;
  passed_tickets_ = std::max(passed_tickets_, next_ticket_);
  changed_.notify_all();
}

void ScriptedRepository::let_through(int count) {
  const std::lock_guard lock(mutex_);
  passed_tickets_ += std::uint64_t(count);
  changed_.notify_all();
}

void ScriptedRepository::wait_until_gated(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return at_gate_ >= count; });
}

void ScriptedRepository::wait_for_reads(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reads_.size() >= count; });
}

std::vector<ScriptedRepository::Read> ScriptedRepository::reads() const {
  const std::lock_guard lock(mutex_);
  return reads_;
}

std::size_t ScriptedRepository::reads_of(const Digest& digest) const {
  const std::lock_guard lock(mutex_);
  return std::size_t(
      std::count_if(reads_.begin(), reads_.end(), [&](const Read& read) { return read.digest == digest; }));
}

ScriptedRepository::Plan ScriptedRepository::plan_read(const oci::Descriptor& blob, ByteRange range) {
  std::unique_lock lock(mutex_);
  reads_.push_back({.digest = blob.digest, .range = range});
  changed_.notify_all();
  if (gate_closed_ && (!gated_ || *gated_ == blob.digest)) {
    const auto ticket = next_ticket_++;
    ++at_gate_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !gate_closed_ || ticket < passed_tickets_; });
    --at_gate_;
  }
  const auto found = blobs_.find(blob.digest);
  if (found == blobs_.end()) fail<NotFound>("{}: blob {} is not there", name_, blob.digest.to_string());
  if (!range.fits_in(found->second.size())) fail<Error>("{}: a read outside blob {}", name_, blob.digest.to_string());
  Plan plan;
  plan.content.assign(found->second.begin() + std::ptrdiff_t(range.offset),
                      found->second.begin() + std::ptrdiff_t(range.end()));
  if (const auto flipped = flipped_.find(blob.digest); flipped != flipped_.end() && range.contains(flipped->second))
    plan.content[flipped->second - range.offset] ^= std::byte{0x10};
  plan.bytes = plan.content.size();
  if (failures_left_ == 0) return plan;
  --failures_left_;
  plan.failure = failure_;
  plan.bytes = std::min(failure_after_, plan.bytes);
  return plan;
}

void ScriptedRepository::read_blob(const oci::Descriptor& blob, ByteRange range, const oci::ByteSink& sink) {
  const auto plan = plan_read(blob, range);
  for (std::uint64_t at = 0; at < plan.bytes; at += kStepBytes)
    sink(ByteView(plan.content).subspan(at, std::min<std::uint64_t>(kStepBytes, plan.bytes - at)));
  if (!plan.failure) return;
  switch (*plan.failure) {
    case Failure::kTemporary:
      fail<TemporaryError>("{}: connection reset", name_);
    case Failure::kCorrupt:
      fail<CorruptData>("{}: wrong bytes", name_);
    case Failure::kDenied:
      fail<Error>("{}: denied", name_);
    case Failure::kShort:
      return;
  }
}

oci::Document ScriptedRepository::manifest(std::string_view selector) {
  fail<NotFound>("{}: no manifest {}", name_, selector);
}

bool ScriptedRepository::has_blob(const oci::Descriptor& blob) {
  const std::lock_guard lock(mutex_);
  return blobs_.contains(blob.digest);
}

void ScriptedRepository::put_blob(const oci::Descriptor& blob, const oci::ByteSource& content) {
  Bytes bytes;
  content({.offset = 0, .length = blob.size}, [&](ByteView part) { append(bytes, part); });
  if (digest_of(bytes) != blob.digest)
    fail<CorruptData>("{}: pushed blob {} does not match", name_, blob.digest.to_string());
  serve(std::move(bytes));
}

oci::Descriptor ScriptedRepository::put_manifest(ByteView, std::string_view, std::string_view) {
  fail<Unsupported>("{}: it keeps blobs only", name_);
}

std::vector<oci::Descriptor> ScriptedRepository::referrers(const Digest&, std::string_view) { return {}; }

}  // namespace varve::test
