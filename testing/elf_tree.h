#pragma once
// For tests: trees of ELF files that exist only as facts.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/index/merge/flat_tree.h"

namespace varve::test {

class FakeTree {
 public:
  FakeTree() {
    tree.has_elf_facts = true;
    dir("");
  }

  index::FlatEntry& dir(const std::string& path) {
    auto& entry = put(path);
    entry.type = FileType::kDirectory;
    return entry;
  }
  index::FlatEntry& file(const std::string& path, std::string_view content = "x") {
    auto& entry = put(path);
    entry.type = FileType::kRegular;
    entry.mode = 0644;
    entry.size = content.size();
    if (!content.empty()) entry.content_digest = digest_of(content);
    return entry;
  }
  index::FlatEntry& link(const std::string& path, std::string target) {
    auto& entry = put(path);
    entry.type = FileType::kSymlink;
    entry.mode = 0777;
    entry.symlink_target = std::move(target);
    return entry;
  }
  // A shared object for x86-64; `paths` may set rpath, runpath, machine and the rest.
  index::FlatEntry& library(const std::string& path, std::vector<std::string> needed = {}, index::ElfFacts facts = {}) {
    auto& entry = file(path, "ELF " + path);
    if (facts.type == 0) facts.type = 3;
    if (facts.machine == 0) facts.machine = 62;
    facts.needed = std::move(needed);
    entry.elf = std::make_shared<const index::ElfFacts>(std::move(facts));
    return entry;
  }

  index::FlatTree tree;

 private:
  index::FlatEntry& put(const std::string& path) {
    for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
      tree.entries.try_emplace(path.substr(0, slash));
    return tree.entries[path];
  }
};

inline index::ElfFacts with_runpath(std::string runpath) {
  index::ElfFacts facts;
  facts.runpath = std::move(runpath);
  return facts;
}
inline index::ElfFacts with_rpath(std::string rpath) {
  index::ElfFacts facts;
  facts.rpath = std::move(rpath);
  return facts;
}

}  // namespace varve::test
