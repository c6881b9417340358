#include "core/index/elf/add_elf_facts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/image_path.h"

namespace varve::index {
namespace {

constexpr std::uint64_t kSmallestElfBytes = 52;

struct Unread {
  std::uint64_t stream_offset = 0;
  FlatEntry* entry = nullptr;
};

// A file with holes or in several runs.
std::shared_ptr<const ElfFacts> read_runs(const FlatEntry& entry, ContentReader& reader) {
  ElfFactsReader facts;
  facts.begin(entry.size);
  std::uint64_t at = 0;
  for (const auto& [layer, run] : entry.runs) {
    facts.feed_zeros(run.file_offset - at);
    reader.read_ranges(layer, {{run.stream_offset, run.length}}, [&](std::size_t, ByteView part) { facts.feed(part); });
    at = run.file_offset + run.length;
  }
  facts.feed_zeros(entry.size - at);
  return facts.finish();
}

bool is_whole(const FlatEntry& entry) {
  return entry.runs.size() == 1 && entry.runs[0].run.file_offset == 0 && entry.runs[0].run.length == entry.size;
}

}  // namespace

bool may_be_elf(std::string_view path, const FlatEntry& entry) {
  if (entry.type != FileType::kRegular || entry.size < kSmallestElfBytes) return false;
  if ((entry.mode & 0111) != 0) return true;
  const auto name = name_of(path);
  if (name.find(".so") != std::string_view::npos) return true;
  return std::ranges::any_of(std::initializer_list<std::string_view>{".o", ".ko", ".node", ".cubin", ".debug", ".elf"},
                             [&](std::string_view end) { return name.ends_with(end); });
}

ElfFactsRead add_elf_facts(FlatTree& tree, ContentReader& reader, const Work& work) {
  ElfFactsRead done;
  if (tree.has_elf_facts) return done;
  const auto fetched_before = reader.fetched_bytes();
  std::map<std::uint32_t, std::vector<Unread>> by_layer;  // files that are one run
  std::vector<FlatEntry*> others;
  for (auto& [path, entry] : tree.entries) {
    if (entry.elf || !entry.link_of.empty() || !may_be_elf(path, entry)) continue;
    work.progress.expect(entry.size);
    if (is_whole(entry)) {
      by_layer[entry.runs[0].layer].push_back({.stream_offset = entry.runs[0].run.stream_offset, .entry = &entry});
    } else {
      others.push_back(&entry);
    }
  }

  std::map<const FlatEntry*, std::shared_ptr<const ElfFacts>> found;
  ElfFactsReader facts;
  for (auto& [layer, files] : by_layer) {
    std::ranges::sort(files, {}, &Unread::stream_offset);
    std::vector<ByteRange> ranges;
    // An index may say that files overlap: such are read one by one.
    std::vector<const FlatEntry*> read;
    for (const auto& file : files) {
      const ByteRange range{file.stream_offset, file.entry->size};
      if (!ranges.empty() && range.offset < ranges.back().end()) {
        others.push_back(file.entry);
        continue;
      }
      ranges.push_back(range);
      read.push_back(file.entry);
    }
    std::size_t open = ranges.size();
    const auto close = [&] {
      if (open == ranges.size()) return;
      if (auto of_file = facts.finish()) found.emplace(read[open], std::move(of_file));
    };
    reader.read_ranges(layer, ranges, [&](std::size_t number, ByteView part) {
      work.add(part.size());
      if (number != open) {
        close();
        open = number;
        facts.begin(ranges[number].length);
      }
      facts.feed(part);
    });
    close();
    done.files += read.size();
  }
  for (const auto* entry : others) {
    work.add(entry->size);
    if (auto of_file = read_runs(*entry, reader)) found.emplace(entry, std::move(of_file));
    ++done.files;
  }

  done.elf_files = found.size();
  done.fetched_bytes = reader.fetched_bytes() - fetched_before;
  for (auto& [path, entry] : tree.entries) {
    const auto& first = entry.link_of.empty() ? entry : tree.entries.at(entry.link_of);
    if (const auto facts_of = found.find(&first); facts_of != found.end()) entry.elf = facts_of->second;
  }
  tree.has_elf_facts = true;
  return done;
}

}  // namespace varve::index
