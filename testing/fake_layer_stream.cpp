#include "testing/fake_layer_stream.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::test {

FakeLayerStream::FakeLayerStream(const std::filesystem::path& file, std::uint64_t stream_bytes)
    : file_(file), fd_(open_file(file, O_RDONLY)) {
  map_.layer_digest = digest_of(file.filename().string());
  map_.diff_id = map_.layer_digest;
  map_.stream_bytes = stream_bytes;
}

void FakeLayerStream::set(Mode mode) {
  const std::lock_guard guard(mutex_);
  mode_ = mode;
}

void FakeLayerStream::keep_what_comes() {
  const std::lock_guard guard(mutex_);
  keeps_ = true;
}

void FakeLayerStream::arrive() {
  std::vector<Done> waiting;
  {
    const std::lock_guard guard(mutex_);
    mode_ = Mode::kMissing;
    waiting.swap(waiting_);
  }
  for (const auto& done : waiting) done(nullptr);
}

void FakeLayerStream::fail_all(const std::string& message) {
  std::vector<Done> waiting;
  {
    const std::lock_guard guard(mutex_);
    mode_ = Mode::kFailing;
    message_ = message;
    waiting.swap(waiting_);
  }
  for (const auto& done : waiting) done(std::make_exception_ptr(TemporaryError(message)));
}

void FakeLayerStream::wait_for_wishes(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return wishes_ >= count; });
}

std::size_t FakeLayerStream::wishes() {
  const std::lock_guard guard(mutex_);
  return wishes_;
}

std::vector<ByteRange> FakeLayerStream::wished() {
  const std::lock_guard guard(mutex_);
  return joined_ranges(wished_);
}

void FakeLayerStream::cut_into_spans(std::uint64_t span_bytes) {
  for (std::uint64_t at = 0; at < map_.stream_bytes; at += span_bytes) {
    auto& span = map_.spans.emplace_back();
    span.stream_range = {.offset = at, .length = std::min(span_bytes, map_.stream_bytes - at)};
    span.compressed_range = {.offset = at / 10, .length = span.stream_range.length / 10};
  }
}

bool FakeLayerStream::is_readable(ByteRange stream_range) const {
  const std::lock_guard guard(mutex_);
  return mode_ == Mode::kHere || std::ranges::any_of(kept_, [&](const ByteRange& kept) {
           return kept.offset <= stream_range.offset && kept.end() >= stream_range.end();
         });
}

void FakeLayerStream::ensure(ByteRange stream_range, fuse::Priority, Done done) {
  if (!stream_range.fits_in(map_.stream_bytes))
    fail<Error>("ensure of {}+{} outside of {} bytes", stream_range.offset, stream_range.length, map_.stream_bytes);
  std::exception_ptr error;
  {
    const std::lock_guard guard(mutex_);
    ++wishes_;
    wished_.push_back(stream_range);
    present_bytes_ += stream_range.length;
    changed_.notify_all();
    if (mode_ == Mode::kHeld) return waiting_.push_back(std::move(done));
    if (mode_ == Mode::kFailing) error = std::make_exception_ptr(TemporaryError(message_));
    if (keeps_ && !error) {
      kept_.push_back(stream_range);
      kept_ = joined_ranges(std::move(kept_));
    }
  }
  done(error);
}

void FakeLayerStream::read_file(std::uint64_t stream_offset, std::span<std::byte> into) const {
  std::memset(into.data(), 0, into.size());
  const auto end = std::min<std::uint64_t>(stream_offset + into.size(), map_.stream_bytes);
  const auto length = end - std::min(stream_offset, end);
  for (std::uint64_t done = 0; done < length;) {
    const auto n = ::pread(fd_.get(), into.data() + done, length - done, static_cast<off_t>(stream_offset + done));
    if (n < 0) fail_errno("read {}", file_.string());
    if (n == 0) return;  // what the file lacks are zeros
    done += static_cast<std::uint64_t>(n);
  }
}

void FakeLayerStream::read(std::uint64_t stream_offset, std::span<std::byte> into, Done done) {
  if (read_if_readable(stream_offset, into)) return done(nullptr);
  const auto offset = std::min(stream_offset, map_.stream_bytes);
  ensure({.offset = offset, .length = std::min<std::uint64_t>(into.size(), map_.stream_bytes - offset)},
         fuse::Priority::kReader, [this, stream_offset, into, done = std::move(done)](std::exception_ptr error) {
           if (!error) read_file(stream_offset, into);
           done(error);
         });
}

bool FakeLayerStream::read_if_readable(std::uint64_t stream_offset, std::span<std::byte> into) {
  if (!is_readable({stream_offset, into.size()})) return false;
  read_file(stream_offset, into);
  return true;
}

bool FakeLayerStream::complete() const {
  const std::lock_guard guard(mutex_);
  return mode_ == Mode::kHere;
}

fuse::StreamStats FakeLayerStream::stats() const {
  const std::lock_guard guard(mutex_);
  fuse::StreamStats stats;
  stats.stream_bytes = map_.stream_bytes;
  stats.present_bytes = mode_ == Mode::kHere ? map_.stream_bytes : std::min(present_bytes_, map_.stream_bytes);
  return stats;
}

}  // namespace varve::test
