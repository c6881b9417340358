#pragma once
// What start-ups are expected to read of a layer, told to the planner while the tar streams by
// (docs/design/index-pass.md says how the weights were found).
#include <cstdint>
#include <string_view>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/codec/tar_parser.h"
#include "core/index/format/layer_entry_reader.h"
#include "indexer/span_planner.h"

namespace varve::indexer {

// In thousandths of a start-up.
struct ReadExpectations {
  std::uint64_t bytecode = 80;            // .pyc: whole
  std::uint64_t script = 25;              // .py, .json, ...: other small files, whole
  std::uint64_t unlikely = 4;             // tests, headers, documentation, caches of package managers
  std::uint64_t library_head = 200;       // ELF: headers, symbols, relocations, the start of the code
  std::uint64_t library_data = 200;       // ELF: writable segments, relocated at load
  std::uint64_t code_per_mib = 250;       // ELF: executable segments, if the library is loaded
  std::uint64_t constants_per_mib = 250;  // ELF: other read-only segments, if it is
  std::uint64_t bulk_per_mib = 300;       // ELF: the middle of long writable segments (device code)
  std::uint64_t large_per_mib = 20;       // anything else of some size
  std::uint64_t large_head = 30;          // its first 64 KiB
};

class ReadModel final : public index::EntryObserver {
 public:
  ReadModel(SpanPlanner& planner, const ReadExpectations& expectations) : planner_(planner), expect_(expectations) {}

  // Entries without content are no matter.
  void begin(const codec::TarEntry& entry) override;
  void content(ByteView bytes) override;
  void end() override;

 private:
  void classify();
  bool expect_elf(ByteView head);
  void expect_segment(std::uint32_t flags, bool first, std::uint64_t begin, std::uint64_t end);

  SpanPlanner& planner_;
  ReadExpectations expect_;
  bool active_ = false;  // a file whose head is still being collected
  ReadWeight whole_ = 0;
  std::uint64_t stream_begin_ = 0;
  std::uint64_t size_ = 0;
  Bytes head_;
};

}  // namespace varve::indexer
