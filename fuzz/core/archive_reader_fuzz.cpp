// Any bytes as an archive: every entry is read or passed over within the limits.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/codec/archive_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  constexpr codec::ArchiveLimits kLimits{.max_entries = 1000, .max_content_bytes = 1 << 20};
  std::uint64_t bytes = 0;
  try {
    auto reader = codec::ArchiveReader::of_bytes(std::as_bytes(std::span(data, size)), "input", kLimits);
    codec::ArchiveEntry entry;
    for (std::uint64_t number = 0; reader.next(entry); ++number) {
      if (number >= kLimits.max_entries) std::abort();
      if (number % 2 == 0)
        reader.read([&](ByteView block) {
          bytes += block.size();
          return true;
        });
      if (bytes > kLimits.max_content_bytes) std::abort();
    }
  } catch (const CorruptData&) {
  } catch (const Unsupported&) {
  }
  return 0;
}
