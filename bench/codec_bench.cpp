// How fast a gzip layer is decoded, by us and by others, side by side in one run: compare the rates, they are of
// decoded bytes. The layer is $VARVE_BENCH_GZIP, or 200 MB of this machine's libraries as gzip -6 makes them.
#include <benchmark/benchmark.h>
#include <isa-l/igzip_lib.h>
#include <sys/resource.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "core/base/files/mapped_file.h"
#include "core/codec/gzip_walker.h"
#include "core/codec/span_decoder.h"
#include "core/codec/tar_parser.h"
#include "testing/temp_dir.h"

namespace {

using namespace varve;
using namespace varve::codec;

constexpr std::size_t kInputStep = 1 << 20;
constexpr std::size_t kOutputStep = 256 * 1024;
constexpr std::uint64_t kSpanBytes = 1 << 20;

class Layer {
 public:
  Layer() {
    if (const char* given = std::getenv("VARVE_BENCH_GZIP")) {
      path_ = given;
    } else {
      path_ = folder_ / "layer.tar.gz";
      const auto make = "tar -cf - /usr/lib 2>/dev/null | head -c 200000000 | gzip -6 >'" + path_.string() + "'";
      if (std::system(make.c_str()) != 0) throw std::runtime_error("cannot make the test layer");
    }
    file_ = MappedFile::open(path_);
  }
  ByteView bytes() const { return file_.bytes(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  varve::test::TempDir folder_;
  std::filesystem::path path_;
  MappedFile file_;
};

const Layer& layer() {
  static const Layer made;
  return made;
}

struct SpanListener final : GzipListener {
  explicit SpanListener(std::uint64_t span_bytes) : span_bytes(span_bytes) {}
  void on_stream_bytes(ByteView bytes) override { stream_bytes += bytes.size(); }
  bool wants_boundary(std::uint64_t stream_offset) override {
    return boundaries.empty() || stream_offset - boundaries.back().stream_offset >= span_bytes;
  }
  void on_boundary(const GzipBoundary& at, ByteView window) override {
    boundaries.push_back(at);
    windows.push_back(to_bytes(window));
  }
  std::uint64_t span_bytes;
  std::uint64_t stream_bytes = 0;
  std::vector<GzipBoundary> boundaries;
  std::vector<Bytes> windows;
};

SpanListener walk(std::uint64_t span_bytes) {
  SpanListener listener(span_bytes);
  GzipWalker walker("layer", listener);
  const auto bytes = layer().bytes();
  for (std::size_t at = 0; at < bytes.size(); at += kInputStep)
    walker.feed(bytes.subspan(at, std::min(kInputStep, bytes.size() - at)));
  walker.finish();
  return listener;
}

void BM_walker_every_boundary(benchmark::State& state) {
  std::uint64_t done = 0;
  for (auto _ : state) done += walk(0).stream_bytes;
  state.SetBytesProcessed(std::int64_t(done));
}

void BM_walker_spans_of_1_MiB(benchmark::State& state) {
  std::uint64_t done = 0;
  for (auto _ : state) done += walk(kSpanBytes).stream_bytes;
  state.SetBytesProcessed(std::int64_t(done));
}

void inflate_with_zlib(benchmark::State& state, int flush) {
  std::uint64_t done = 0;
  std::vector<Bytef> room(kOutputStep);
  for (auto _ : state) {
    z_stream stream{};
    inflateInit2(&stream, 31);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(layer().bytes().data()));
    stream.avail_in = uInt(layer().bytes().size());
    int result = Z_OK;
    while (result == Z_OK) {
      stream.next_out = room.data();
      stream.avail_out = uInt(room.size());
      result = inflate(&stream, flush);
      done += room.size() - stream.avail_out;
    }
    if (result != Z_STREAM_END) state.SkipWithError("zlib refuses the layer");
    inflateEnd(&stream);
  }
  state.SetBytesProcessed(std::int64_t(done));
}

void BM_zlib_every_boundary(benchmark::State& state) { inflate_with_zlib(state, Z_BLOCK); }
void BM_zlib(benchmark::State& state) { inflate_with_zlib(state, Z_NO_FLUSH); }

void BM_isal(benchmark::State& state) {
  std::uint64_t done = 0;
  std::vector<std::uint8_t> room(kOutputStep);
  const auto decoder = std::make_unique<inflate_state>();
  for (auto _ : state) {
    isal_inflate_init(decoder.get());
    decoder->crc_flag = ISAL_GZIP;
    decoder->next_in = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(layer().bytes().data()));
    decoder->avail_in = std::uint32_t(layer().bytes().size());
    while (decoder->block_state != ISAL_BLOCK_FINISH) {
      decoder->next_out = room.data();
      decoder->avail_out = std::uint32_t(room.size());
      if (isal_inflate(decoder.get()) != ISAL_DECOMP_OK) {
        state.SkipWithError("ISA-L refuses the layer");
        break;
      }
      done += room.size() - decoder->avail_out;
    }
  }
  state.SetBytesProcessed(std::int64_t(done));
}

double processor_seconds_of_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Processor time, as for the others: a busy machine changes little.
void BM_gzip_dc(benchmark::State& state) {
  const auto stream_bytes = walk(UINT64_MAX).stream_bytes;
  const auto command = "gzip -dc <'" + layer().path().string() + "' >/dev/null";
  for (auto _ : state) {
    const auto before = processor_seconds_of_children();
    if (std::system(command.c_str()) != 0) state.SkipWithError("gzip refuses the layer");
    state.SetIterationTime(processor_seconds_of_children() - before);
  }
  state.SetBytesProcessed(state.iterations() * std::int64_t(stream_bytes));
}

std::size_t first_byte_of(const GzipBoundary& at) { return at.compressed_offset - (at.bits != 0 ? 1 : 0); }

void BM_span_decoder(benchmark::State& state) {
  const auto spans = walk(kSpanBytes);
  SpanDecoder decoder;
  std::uint64_t done = 0;
  Bytes stream;
  for (auto _ : state) {
    for (std::size_t i = 0; i + 1 < spans.boundaries.size(); ++i) {
      const auto& at = spans.boundaries[i];
      stream.resize(spans.boundaries[i + 1].stream_offset - at.stream_offset);
      decoder.decode_gzip({.compressed = layer().bytes().subspan(first_byte_of(at)),
                           .bits = at.bits,
                           .window = spans.windows[i],
                           .member_header = at.member_start},
                          stream, "span");
      done += stream.size();
    }
  }
  state.SetBytesProcessed(std::int64_t(done));
}

// Rate of the layer as a whole: what one window a span adds to the walk.
void BM_sparse_windows_of_1_MiB_spans(benchmark::State& state) {
  const auto spans = walk(kSpanBytes);
  std::vector<Bytes> sparse;
  for (auto _ : state) {
    sparse.clear();
    for (std::size_t i = 0; i < spans.boundaries.size(); ++i) {
      if (spans.boundaries[i].member_start) continue;
      const auto from = layer().bytes().subspan(first_byte_of(spans.boundaries[i]));
      sparse.push_back(make_window_sparse(from.first(std::min<std::size_t>(from.size(), 256 * 1024)),
                                          spans.boundaries[i].bits, spans.windows[i]));
    }
  }
  state.SetBytesProcessed(state.iterations() * std::int64_t(spans.stream_bytes));
  for (const int level : {3, 9, 19}) {
    std::size_t bytes = 0;
    for (const auto& window : sparse) bytes += compress_zstd(window, level).size();
    state.counters["bytes_per_window_zstd_" + std::to_string(level)] =
        double(bytes) / double(std::max<std::size_t>(sparse.size(), 1));
  }
}

// The same for compressing them.
void BM_compress_windows(benchmark::State& state) {
  const auto spans = walk(kSpanBytes);
  std::vector<Bytes> sparse;
  for (std::size_t i = 0; i < spans.boundaries.size(); ++i) {
    const auto from = layer().bytes().subspan(first_byte_of(spans.boundaries[i]));
    if (!spans.boundaries[i].member_start)
      sparse.push_back(make_window_sparse(from, spans.boundaries[i].bits, spans.windows[i]));
  }
  for (auto _ : state) {
    for (const auto& window : sparse) benchmark::DoNotOptimize(compress_zstd(window, int(state.range(0))));
  }
  state.SetBytesProcessed(state.iterations() * std::int64_t(spans.stream_bytes));
}

struct CountingTarListener final : TarListener {
  void on_entry(TarEntry) override { ++entries; }
  void on_content(ByteView bytes) override { content_bytes += bytes.size(); }
  void on_entry_end() override {}
  std::uint64_t entries = 0, content_bytes = 0;
};

// The walk with tar entries found on the way, as an index is built.
void BM_walker_and_tar_parser(benchmark::State& state) {
  struct Listener final : GzipListener {
    void on_stream_bytes(ByteView bytes) override {
      stream_bytes += bytes.size();
      parser.feed(bytes);
    }
    bool wants_boundary(std::uint64_t) override { return false; }
    void on_boundary(const GzipBoundary&, ByteView) override {}
    CountingTarListener counting;
    TarParser parser{"layer", counting};
    std::uint64_t stream_bytes = 0;
  };
  std::uint64_t done = 0;
  for (auto _ : state) {
    Listener listener;
    GzipWalker walker("layer", listener);
    walker.feed(layer().bytes());
    walker.finish();
    done += listener.stream_bytes;
    state.counters["entries"] = double(listener.counting.entries);
  }
  state.SetBytesProcessed(std::int64_t(done));
}

BENCHMARK(BM_gzip_dc)->Unit(benchmark::kMillisecond)->UseManualTime();
BENCHMARK(BM_zlib)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_zlib_every_boundary)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_isal)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_walker_every_boundary)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_walker_spans_of_1_MiB)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_walker_and_tar_parser)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_span_decoder)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_sparse_windows_of_1_MiB_spans)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_compress_windows)->Unit(benchmark::kMillisecond)->Arg(3)->Arg(9)->Arg(19);

}  // namespace

BENCHMARK_MAIN();
