#pragma once
// What the tests of layer streams share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/errors.h"
#include "fuse/stream/attempts.h"
#include "fuse/stream/layer_stream.h"
#include "testing/layer_maker.h"
#include "testing/read_and_wait.h"
#include "testing/scripted_repository.h"
#include "testing/temp_dir.h"

namespace varve::fuse {

// The end of one ensure().
class Outcome {
 public:
  LayerStream::Done done() {
    return [this](std::exception_ptr error) {
      const std::lock_guard lock(mutex_);
      ++calls_;
      error_ = error;
      changed_.notify_all();
    };
  }
  // "" if it went well.
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return calls_ > 0; });
    return error_ ? message_of(error_) : "";
  }
  template <typename E>
  bool failed_with() {
    wait();
    try {
      if (error_) std::rethrow_exception(error_);
    } catch (const E&) {
      return true;
    } catch (...) {
    }
    return false;
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  std::exception_ptr error_;
};

class LayerStreamTestBase : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSpan = 50'000;

  // Counts exactly: nothing is fetched that nobody asked for, unless a test says otherwise.
  StreamOptions options_{.decode_threads = 3,
                         .read_ahead_bytes = 0,
                         .read_next_when_idle = false,
                         .sync_interval = std::chrono::milliseconds(20)};

  // Before the clock of a test goes.
  void TearDown() override {
    stream_.reset();
    streams_.reset();
  }
  void open() {
    stream_.reset();
    streams_.reset();
    streams_ = LayerStreams::open(dir_ / "store", options_, *clock_);
  }
  std::shared_ptr<LayerStream> serve(const test::MadeLayer& layer) {
    if (!streams_) open();
    layer.serve_from(*repository_);
    stream_ = streams_->stream(layer.map, layer.blob_descriptor, repository_, layer.index_blobs, repository_);
    return stream_;
  }
  // What was read is in the store when this returns, with all that is fetched just then.
  static Bytes read(LayerStream& stream, std::uint64_t offset, std::size_t length) {
    auto bytes = test::read_and_wait(stream, offset, length);
    while (stream.stats().fetching > 0) std::this_thread::yield();
    return bytes;
  }
  // For threads of a test, which must not throw: a failed read fails the test and returns nothing.
  static Bytes try_read(LayerStream& stream, std::uint64_t offset, std::size_t length) {
    try {
      return test::read_and_wait(stream, offset, length);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      return {};
    }
  }
  static Bytes part(const test::MadeLayer& layer, std::uint64_t offset, std::size_t length) {
    return to_bytes(ByteView(layer.stream).subspan(offset, length));
  }
  std::filesystem::path data_file(const test::MadeLayer& layer) const {
    return dir_ / "store" / (layer.map->layer_digest.hex() + "-" + layer.index_blobs.map.digest.hex()) / "data";
  }

  test::TempDir dir_;
  Clock* clock_ = &Clock::system();
  std::shared_ptr<test::ScriptedRepository> repository_ = std::make_shared<test::ScriptedRepository>();
  std::unique_ptr<LayerStreams> streams_;
  std::shared_ptr<LayerStream> stream_;
};

}  // namespace varve::fuse
