#pragma once
// How layers are written, from the words of the command line.
#include <string>

#include "indexer/layer_writer.h"

namespace varve::cli {

// `format`: "zstd:chunked" or "gzip". `level` 0 = the format's default. Throws UsageError for a level that the format
// does not have.
indexer::LayerWriterOptions writer_options(const std::string& format, int level, unsigned jobs);

}  // namespace varve::cli
