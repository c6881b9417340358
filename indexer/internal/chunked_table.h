#pragma once
// The table of contents and the tar-split of a zstd:chunked layer, written as the layer goes by.
// docs/formats/zstd-chunked.md.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/codec/frame_encoder.h"
#include "core/codec/tar_parser.h"

namespace varve::indexer {

struct PlacedChunk {
  std::uint64_t file_offset = 0;
  std::uint64_t bytes = 0;              // of content
  std::uint64_t compressed_offset = 0;  // of its frame
  bool zeros = false;
  Digest digest = {};  // absent (all zero) for the only chunk of a file
};

class ChunkedTable {
 public:
  // An entry of the tar. `header`: the raw bytes since the last entry's content, its own headers last.
  void begin_entry(const codec::TarEntry& entry, ByteView header);
  // Its content has gone by; not for entries without.
  void end_content(std::uint64_t crc64);
  // Its frames are written: in the order of begin_entry, those without content included.
  void place_entry(const codec::TarEntry& entry, std::uint32_t header_mode, const Digest& content_digest,
                   const std::vector<PlacedChunk>& chunks, std::uint64_t end_offset);
  // Why there can be no table, found by the caller.
  void give_up(std::string reason);
  const std::string& reason() const { return reason_; }

  struct Tail {
    Bytes bytes;  // the three skippable frames
    std::map<std::string, std::string> annotations;
  };
  // `rest`: the raw bytes behind the last entry. `offset`: of the tail in the blob.
  Tail finish(ByteView rest, std::uint64_t offset);

 private:
  void add_split_segment(ByteView raw);
  void add_split_line(std::string_view line);
  void add_toc_text(std::string_view text);

  std::string reason_;
  codec::ZstdStreamEncoder toc_{kTableLevel};
  codec::ZstdStreamEncoder split_{kTableLevel};
  static constexpr int kTableLevel = 3;
  std::uint64_t split_position_ = 0;
  std::string open_name_;  // of the entry whose content goes by
  std::uint64_t open_size_ = 0;
  bool first_ = true;
  std::unordered_set<std::string> names_;
};

// Why an entry cannot be told in a table of contents; "" = it can. `header`: its last header block.
std::string_view table_obstacle(const codec::TarEntry& entry, ByteView header);
// The mode field as the header has it, type bits included if some writer put them there.
std::uint32_t header_mode(ByteView header);

}  // namespace varve::indexer
