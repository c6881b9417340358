#pragma once
// The units of one layer: contents that can be copied from another layer and proved alone. A unit is a file of up to
// 1 MiB, or 1 MiB of a larger one, with its digest in the layer entries. Kept beside the layer in the store, so that
// nobody has to read the entries again: docs/formats/store.md "units".
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/files/mapped_file.h"
#include "core/index/format/layer_entries.h"

namespace varve::index {

inline constexpr std::uint64_t kMaxUnitBytes = kChunkBytes;

// Of a unit that is Python's bytecode: what its header holds if it is bound to the time of its source (PEP 552).
struct UnitBytecode {
  std::uint64_t path = 0;            // a number that stands for the path
  bool has_source = false;           // its source is in the layer
  std::uint32_t source_seconds = 0;  // modulo 2^32, as in the header
  std::uint32_t source_bytes = 0;    // modulo 2^32
};

// Contents are numbered in the order of the stream; what is no unit (of sparse files) is numbered, too, so that all
// content is known. Cannot be changed; safe to use from any thread.
class UnitTable {
 public:
  // The table of a layer as it is kept. Throws CorruptData naming the entries if their contents overlap, lie outside of
  // the stream or are not aligned as tar does.
  static Bytes make(const LayerEntries& entries, const Digest& entries_digest, std::uint64_t stream_bytes);
  // Of bytes that outlive it. What it returns can be used without further checks. Throws CorruptData.
  static UnitTable decode(ByteView bytes, std::string_view what);
  // Null if there is no such file. Throws as decode(), and std::system_error.
  static std::shared_ptr<const UnitTable> open(const std::filesystem::path& file);

  const Digest& layer_digest() const { return layer_; }
  const Digest& entries_digest() const { return entries_; }
  std::uint64_t stream_bytes() const { return stream_bytes_; }
  // Of what presence by numbers depends on: each content's place and digest.
  Digest cut() const;

  std::size_t size() const { return contents_; }
  ByteRange range(std::size_t content) const;
  // With the zeros behind it, up to the next block of the tar.
  ByteRange padded_range(std::size_t content) const;
  bool is_unit(std::size_t content) const { return kind(content) != kNoUnit; }
  // Zero for what is no unit.
  Digest digest(std::size_t content) const;
  std::optional<UnitBytecode> bytecode(std::size_t content) const;
  // First and one past the last content that touches a range of the stream, paddings included.
  std::pair<std::size_t, std::size_t> contents_of(ByteRange stream_range) const;

  // A unit with that digest; absent if there is none.
  std::optional<std::size_t> find(const Digest& digest) const;
  // Bytecode of that path and of so many bytes.
  std::vector<std::size_t> find_bytecode(std::uint64_t path, std::uint64_t bytes) const;

 private:
  static constexpr std::uint32_t kNoUnit = 0, kUnit = 1, kFirstBytecode = 2;  // kinds; from the last on, its number

  UnitTable() = default;
  const std::byte* row(std::size_t content) const;
  std::uint32_t kind(std::size_t content) const;
  const std::byte* bytecode_row(std::size_t number) const;
  void check(std::string_view what) const;

  MappedFile mapping_;
  ByteView bytes_;
  Digest layer_, entries_;
  std::uint64_t stream_bytes_ = 0;
  std::size_t contents_ = 0, units_ = 0, bytecode_ = 0;
};

}  // namespace varve::index
