// ELF facts: never a crash, the same however the content is cut, and within the bounds that the index relies on. The
// first byte says how it is cut; a file is followed by zeros beyond what is kept of a head, so that the tables of a
// mutated one lie behind it too.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/index/elf/elf_facts.h"

namespace {

using namespace varve;

constexpr std::size_t kHeadBytes = 1024;  // of megabytes of zeros nothing is learnt

std::shared_ptr<const index::ElfFacts> facts_of(ByteView content, std::uint64_t hole_at, std::uint64_t hole,
                                                std::size_t step) {
  index::ElfFactsReader reader(kHeadBytes);
  reader.begin(content.size() + hole);
  const auto feed = [&](ByteView part) {
    for (; !part.empty(); part = part.subspan(std::min(step, part.size())))
      reader.feed(part.first(std::min(step, part.size())));
  };
  feed(content.first(hole_at));
  reader.feed_zeros(hole);
  feed(content.subspan(hole_at));
  return reader.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto content = std::as_bytes(std::span(data + 2, size - 2));
  const auto hole_at = content.size() * data[0] / 256;
  const std::uint64_t hole = data[0] % 2 == 0 ? 0 : kHeadBytes + 16 * data[1];
  const auto whole = facts_of(content, hole_at, hole, SIZE_MAX);
  const auto cut = facts_of(content, hole_at, hole, 13 + 16 * data[1]);  // smaller pieces cost more than they find
  if ((whole == nullptr) != (cut == nullptr)) std::abort();
  if (!whole) return 0;
  if (*whole != *cut) std::abort();
  if (whole->needed.size() > index::kMaxNeededLibraries || index::text_bytes(*whole) > index::kMaxElfTextBytes + 1024)
    std::abort();
  return 0;
}
