#pragma once
// From a layer's tar stream to its entries with the digests of their contents.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/codec/tar_parser.h"
#include "core/index/elf/elf_facts.h"
#include "core/index/format/layer_entries.h"

namespace varve::index {

// Holes are digested as zeros. What a layer may claim to hold of them is bounded: beyond it a sparse file has no
// content digest (all zero).
inline constexpr std::uint64_t kMaxHoleBytes = 16ull << 30;

// An entry of the tar as the index keeps it, without digests. Throws CorruptData or Unsupported naming `what` for names
// and owners that cannot be. Strings are moved out of `entry`.
LayerEntry make_layer_entry(codec::TarEntry& entry, std::string_view what);

// Sees what the reader sees, as it streams by: entries in tar order, each with its stored content (codec::TarListener
// says in what form).
class EntryObserver {
 public:
  virtual ~EntryObserver() = default;
  virtual void begin(const codec::TarEntry& entry) = 0;
  virtual void content(ByteView bytes) = 0;
  virtual void end() = 0;
};

// The entries have digests and ELF facts. Memory: the entries, and that of an ElfFactsReader. Not shared between
// threads.
class LayerEntryReader final : private codec::TarListener {
 public:
  // `what` names the layer. `observer` may be null and must outlive the reader.
  LayerEntryReader(std::string what, EntryObserver* observer);
  // Both throw CorruptData or Unsupported naming `what`, and what the observer throws.
  void feed(ByteView stream) { parser_.feed(stream); }
  void finish() { parser_.finish(); }
  std::vector<LayerEntry> take_entries() { return std::move(entries_); }

 private:
  void on_entry(codec::TarEntry entry) override;
  void on_content(ByteView bytes) override;
  void on_entry_end() override;
  void find_elf_facts();
  void digest_hole(std::uint64_t bytes);
  void digest(ByteView content);

  std::string what_;
  EntryObserver* observer_;
  std::vector<LayerEntry> entries_;
  codec::TarParser parser_;

  // The entry being read.
  bool has_content_ = false;
  bool has_chunks_ = false;
  bool holes_too_large_ = false;
  std::uint64_t file_offset_ = 0;
  std::size_t run_ = 0;
  std::uint64_t hole_bytes_ = 0;  // of the layer so far
  Sha256 content_digest_;
  Sha256 chunk_digest_;
  ElfFactsReader elf_;
  std::uint64_t elf_text_bytes_ = 0;  // of the layer so far
  std::uint64_t in_chunk_ = 0;
};

}  // namespace varve::index
