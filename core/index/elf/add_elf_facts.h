#pragma once
// Completes the tree of an image that was indexed before indexes kept ELF facts, by reading its files.
#include <cstdint>
#include <string_view>

#include "core/base/work.h"
#include "core/index/content_reader.h"
#include "core/index/merge/flat_tree.h"

namespace varve::index {

struct ElfFactsRead {
  std::uint64_t files = 0;          // that were read whole
  std::uint64_t elf_files = 0;      // of them
  std::uint64_t fetched_bytes = 0;  // compressed
};

// Regular files that a loader or a program may take as ELF files: executable ones, and those with the names of
// libraries, objects and modules.
bool may_be_elf(std::string_view path, const FlatEntry& entry);

// Reads every such file that has no facts and gives it those it has; then tree.has_elf_facts is true. Costs about what
// indexing the image again costs, and what is named like nothing known is passed over: `varve index` is the better way
// wherever the image's index may be changed. Does nothing if the tree has its facts. Throws what ContentReader throws,
// and Cancelled; the tree is not changed then.
ElfFactsRead add_elf_facts(FlatTree& tree, ContentReader& reader, const Work& work);

}  // namespace varve::index
