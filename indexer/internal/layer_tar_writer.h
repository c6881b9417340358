#pragma once
// The tar of a layer that is written anew.
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/work.h"
#include "core/codec/tar_writer.h"
#include "indexer/internal/content_feed.h"
#include "indexer/layer_writer.h"
#include "indexer/pack_units.h"

namespace varve::indexer {

// One layer that is to be written: its tar, entry by entry.
struct LayerPlan {
  std::vector<UnitEntry> entries;  // in byte order, whiteouts among them as `added` ones
  std::string name;                // for messages
};

// The entry brings bytes of the image: no link, no directory, nothing empty or added.
bool has_content(const UnitEntry& unit);

// Threads that decode for a writer with these options.
unsigned decoders_of(const LayerWriterOptions& options);

// Writes one layer after the other; each content is checked against its digest in the index on the way. What it is
// given must outlive it. For one thread. Throws CorruptData for a layer that is not what the index says, Cancelled.
class LayerTarWriter {
 public:
  LayerTarWriter(const ContentOrigin& origin, SpooledLayers& spooled, const LayerWriterOptions& options,
                 const Work& work)
      : origin_(origin), options_(options), spooled_(spooled), work_(work) {}

  WrittenLayer write(const LayerPlan& plan, const LayerWriter::Sink& sink);

 private:
  struct Expected {
    std::string_view path;
    Digest content;
  };

  void write_entry(codec::TarWriter& tar, ContentFeed& feed, const UnitEntry& unit);
  // With the time that its source gets; it has no holes.
  void give_bytecode(codec::TarWriter& tar, ContentFeed& feed, const UnitEntry& unit);
  void give_content(codec::TarWriter& tar, ContentFeed& feed, std::uint64_t length);
  void give_zeros(codec::TarWriter& tar, std::uint64_t length);
  void check_content(const std::string& name, const Digest& content);
  void collect(LayerWriter& writer, ByteView bytes);
  void flush(LayerWriter& writer);

  const ContentOrigin& origin_;
  const LayerWriterOptions& options_;
  SpooledLayers& spooled_;
  const Work work_;
  Bytes waiting_;                  // for the writer
  std::deque<Expected> expected_;  // digests of files that the writer has not seen whole
};

}  // namespace varve::indexer
