#include "cli/image/writer_options.h"

#include "core/base/errors.h"
#include "core/codec/frame_encoder.h"

namespace varve::cli {
namespace {

constexpr int kDefaultZstdLevel = 3;
constexpr int kDefaultGzipLevel = 6;

}  // namespace

indexer::LayerWriterOptions writer_options(const std::string& format, int level, unsigned jobs) {
  indexer::LayerWriterOptions writer;
  const bool gzip = format == "gzip";
  writer.format = gzip ? indexer::WrittenFormat::kGzip : indexer::WrittenFormat::kZstdChunked;
  writer.level = level != 0 ? level : gzip ? kDefaultGzipLevel : kDefaultZstdLevel;
  writer.jobs = jobs;
  const int most = gzip ? codec::kMaxGzipLevel : codec::kMaxZstdLevel;
  if (writer.level < 1 || writer.level > most)
    fail<UsageError>("--level {}: {} has levels from 1 to {}", writer.level, format, most);
  return writer;
}

}  // namespace varve::cli
