// store_bench: how fast a cold layer is read through the store, and where its CPU time goes, beside `gzip -dc` of the
// same bytes.
//   store_bench LAYER.gz [DIR]     a gzip layer blob, and a folder for the stores (on the disk to be measured)
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <mutex>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/codec/span_decoder.h"
#include "core/index/span_reader.h"
#include "fuse/stream/layer_stream.h"
#include "testing/forwarding_repository.h"
#include "testing/layer_maker.h"
#include "testing/read_and_wait.h"
#include "testing/scripted_repository.h"
#include "testing/temp_dir.h"

namespace {

using namespace varve;

constexpr std::uint64_t kSpanBytes = 1 << 20;
constexpr std::size_t kReadBytes = 128 << 10;  // as the kernel's read-ahead asks

double cpu_seconds(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Cost {
  double seconds = 0;
  double cpu = 0;
};

template <typename Operation>
Cost measure(int who, Operation&& operation) {
  const auto cpu = cpu_seconds(who);
  const Stopwatch watch;
  operation();
  return {.seconds = watch.seconds(), .cpu = cpu_seconds(who) - cpu};
}

// A link in front of a repository: each request waits one round trip, and all share one rate.
class LinkedRepository final : public test::ForwardingRepository {
 public:
  LinkedRepository(std::shared_ptr<oci::Repository> repository, double bytes_per_second,
                   std::chrono::microseconds round_trip)
      : ForwardingRepository(std::move(repository)), bytes_per_second_(bytes_per_second), round_trip_(round_trip) {}

  void read_blob(const oci::Descriptor& blob, ByteRange range, const oci::ByteSink& sink) override {
    std::this_thread::sleep_for(round_trip_);
    real_->read_blob(blob, range, [&](ByteView bytes) {
      std::this_thread::sleep_until(send(bytes.size()));
      sink(bytes);
    });
  }

 private:
  using Steady = std::chrono::steady_clock;

  // When the last of these bytes is through.
  Steady::time_point send(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::chrono::duration<double> time(double(bytes) / bytes_per_second_);
    free_ = std::max(free_, Steady::now()) + std::chrono::duration_cast<Steady::duration>(time);
    return free_;
  }

  const double bytes_per_second_;
  const std::chrono::microseconds round_trip_;
  std::mutex mutex_;
  Steady::time_point free_;
};

class StoreBench {
 public:
  StoreBench(const std::filesystem::path& blob, std::filesystem::path dir)
      : blob_(blob), dir_(std::move(dir)), layer_(test::make_gzip_layer(read_file(blob), kSpanBytes)) {
    layer_.serve_from(*repository_);
    fmt::print("{}: {:.1f} MB gzip, {:.1f} MB stream, {} spans, windows {:.2f} MB\n\n", blob.filename().string(),
               mb(layer_.blob.size()), mb(layer_.stream.size()), layer_.map->spans.size(), mb(layer_.windows.size()));
  }

  void run() {
    const auto linked = std::make_shared<LinkedRepository>(repository_, 125e6, std::chrono::milliseconds(2));
    fmt::print("{:<44} {:>8} {:>9} {:>12} {:>9} {:>9}\n", "sequential, 128 KiB reads", "s", "MB/s", "CPU ms/MB",
               "requests", "x gzip");
    for (int round = 0; round < 3; ++round) {
      const auto gzip = measure(RUSAGE_CHILDREN, [&] { gunzip(); });
      row("gzip -dc > /dev/null", gzip, 1, gzip);
      read_sequentially("cold, local source", repository_, {}, gzip);
      read_sequentially("cold, 1 Gbit/s, 2 ms", linked, {}, gzip);
      read_sequentially("cold, 1 Gbit/s, 2 ms, no read-ahead", linked,
                        {.read_ahead_bytes = 0, .read_next_when_idle = false}, gzip);
    }
    parts();
    fmt::print("\n{:<44} {:>8} {:>9} {:>12}\n", "300 places, 64 KiB each, 1 Gbit/s, 2 ms", "s", "requests",
               "MB fetched");
    for (int round = 0; round < 3; ++round) {
      read_places("nothing ahead", linked, {.read_next_when_idle = false}, false);
      read_places("next span when idle", linked, {.read_next_when_idle = true}, false);
      read_places("nothing ahead, reader computes 2 ms", linked, {.read_next_when_idle = false}, true);
      read_places("next span when idle, reader computes 2 ms", linked, {.read_next_when_idle = true}, true);
    }
  }

 private:
  static double mb(std::uint64_t bytes) { return double(bytes) / 1e6; }

  void row(std::string_view name, const Cost& cost, std::uint64_t requests, const Cost& gzip) const {
    const auto megabytes = mb(layer_.stream.size());
    fmt::print("{:<44} {:>8.2f} {:>9.1f} {:>12.2f} {:>9} {:>9.2f}\n", name, cost.seconds, megabytes / cost.seconds,
               cost.cpu * 1e3 / megabytes, requests, cost.seconds / gzip.seconds);
  }

  void gunzip() const {
    const auto child = ::fork();
    if (child < 0) fail_errno("fork");
    if (child == 0) {
      const auto sink = open_file("/dev/null", O_WRONLY);
      ::dup2(sink.get(), STDOUT_FILENO);
      ::execlp("gzip", "gzip", "-dc", blob_.c_str(), nullptr);
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) fail<Error>("gzip -dc {} failed", blob_.string());
  }

  // A store with nothing in it.
  std::unique_ptr<fuse::LayerStreams> open_cold(const fuse::StreamOptions& options) const {
    std::filesystem::remove_all(dir_ / "store");
    return fuse::LayerStreams::open(dir_ / "store", options);
  }
  std::shared_ptr<fuse::LayerStream> open_stream(fuse::LayerStreams& streams,
                                                 const std::shared_ptr<oci::Repository>& source) const {
    return streams.stream(layer_.map, layer_.blob_descriptor, source, layer_.index_blobs, source);
  }

  void read_sequentially(std::string_view name, const std::shared_ptr<oci::Repository>& source,
                         const fuse::StreamOptions& options, const Cost& gzip) const {
    auto streams = open_cold(options);
    auto stream = open_stream(*streams, source);
    Bytes buffer(kReadBytes);
    const auto cost = measure(RUSAGE_SELF, [&] {
      for (std::uint64_t at = 0; at < layer_.stream.size(); at += buffer.size()) {
        const auto length = std::min<std::uint64_t>(buffer.size(), layer_.stream.size() - at);
        test::read_and_wait(*stream, at, std::span(buffer).first(length));
        if (!std::equal(buffer.begin(), buffer.begin() + std::ptrdiff_t(length),
                        layer_.stream.begin() + std::ptrdiff_t(at)))
          fail<Error>("wrong bytes at {}", at);
      }
    });
    row(name, cost, stream->stats().requests, gzip);
  }

  // What page faults of a start-up look like: places all over, some near each other.
  void read_places(std::string_view name, const std::shared_ptr<oci::Repository>& source,
                   const fuse::StreamOptions& options, bool computes) const {
    auto streams = open_cold(options);
    auto stream = open_stream(*streams, source);
    std::minstd_rand random(42);
    Bytes buffer(64 << 10);
    const auto cost = measure(RUSAGE_SELF, [&] {
      std::uint64_t at = 0;
      for (int place = 0; place < 300; ++place) {
        // Three of four lie within 4 MiB behind the one before.
        at = random() % 4 != 0 ? at + random() % (4 << 20) : std::uint64_t(random()) * 7;
        at %= layer_.stream.size() - buffer.size();
        test::read_and_wait(*stream, at, std::span(buffer));
        if (computes) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
    fmt::print("{:<44} {:>8.2f} {:>9} {:>12.1f}\n", name, cost.seconds, stream->stats().requests,
               mb(stream->stats().fetched_bytes));
  }

  // The steps of a span, one after another in one thread.
  void parts() const {
    const auto megabytes = mb(layer_.stream.size());
    const auto show = [&](std::string_view name, const Cost& cost) {
      fmt::print("{:<44} {:>12.2f}\n", name, cost.cpu * 1e3 / megabytes);
    };
    const auto& spans = layer_.map->spans;
    const auto compressed = [&](const index::Span& span) {
      return ByteView(layer_.blob).subspan(span.compressed_range.offset, span.compressed_range.length);
    };
    const auto stream = [&](const index::Span& span) {
      return ByteView(layer_.stream).subspan(span.stream_range.offset, span.stream_range.length);
    };
    codec::SpanDecoder decoder;
    Bytes buffer;
    fmt::print("\n{:<44} {:>12}\n", "one thread, by step", "CPU ms/MB");
    show("digest of the compressed bytes", measure(RUSAGE_SELF, [&] {
           for (const auto& span : spans) digest_of(compressed(span));
         }));
    show("digest of the stream bytes", measure(RUSAGE_SELF, [&] {
           for (const auto& span : spans) digest_of(stream(span));
         }));
    show("both digests, window and decode", measure(RUSAGE_SELF, [&] {
           for (std::size_t i = 0; i < spans.size(); ++i) {
             buffer.resize(spans[i].stream_range.length);
             const auto record = layer_.map->record_range(i);
             index::decode_span(*layer_.map, i,
                                {.compressed = compressed(spans[i]),
                                 .record = ByteView(layer_.windows).subspan(record.offset, record.length)},
                                buffer, decoder);
           }
         }));
    const auto file = open_file(dir_ / "written", O_RDWR | O_CREAT | O_TRUNC);
    show("write to the store's disk, with sync", measure(RUSAGE_SELF, [&] {
           for (const auto& span : spans) pwrite_all(file.get(), span.stream_range.offset, stream(span), "written");
           ::fdatasync(file.get());
         }));
    std::filesystem::remove(dir_ / "written");
  }

  const std::filesystem::path blob_;
  const std::filesystem::path dir_;
  const test::MadeLayer layer_;
  const std::shared_ptr<test::ScriptedRepository> repository_ = std::make_shared<test::ScriptedRepository>();
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: store_bench LAYER.gz [DIR]\n";
    return 2;
  }
  const test::TempDir temporary;
  StoreBench(argv[1], argc == 3 ? std::filesystem::path(argv[2]) : temporary.path()).run();
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
