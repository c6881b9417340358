#pragma once
// Files in memory, for tests and fuzzing of what reads them.
#include <set>
#include <utility>

#include "core/base/errors.h"
#include "core/index/file_source.h"

namespace varve::test {

class MemorySource final : public index::FileSource {
 public:
  // Parents are made on the way; what was there under the name gives way.
  MemorySource& add(const std::string& path, std::string_view content = "", std::uint32_t layer = 0) {
    index::FlatEntry file;
    file.type = FileType::kRegular;
    file.mode = 0;
    file.size = content.size();
    file.compressed_bytes = content.size() / 2;
    file.layer = layer;
    put(path, std::move(file));
    contents_[path] = content;
    return *this;
  }
  MemorySource& link(const std::string& path, const std::string& target) {
    index::FlatEntry file;
    file.type = FileType::kSymlink;
    file.mode = 0;
    file.symlink_target = target;
    put(path, std::move(file));
    return *this;
  }
  MemorySource& folder(const std::string& path) {
    make_parents(path + "/x");
    return *this;
  }

  const index::FlatTree& tree() const override { return tree_; }
  const index::SourceFacts& facts() const override { return facts_; }
  void read(const std::vector<std::string>& paths, std::uint64_t limit_bytes,
            const index::OnContent& got) const override {
    for (const auto& path : paths) {
      const auto found = contents_.find(path);
      asked_.insert(path);
      if (found == contents_.end() || found->second.size() > limit_bytes) {
        got(path, std::nullopt);
      } else {
        got(path, to_bytes(varve::as_bytes(found->second)));
      }
    }
  }
  void read_ranges(const std::string& path, const std::function<void(const index::RangeReader&)>& use) const override {
    const auto found = contents_.find(path);
    if (found == contents_.end()) fail<NotFound>("{}: no such file", path);
    use([&](ByteRange range) {
      if (!range.fits_in(found->second.size())) fail<CorruptData>("{}: outside the file", path);
      return to_bytes(varve::as_bytes(found->second).subspan(range.offset, range.length));
    });
  }
  index::SourceFacts facts_{.image = {}, .layers = {}, .environment = {}, .architecture = "amd64"};
  mutable std::set<std::string> asked_;  // what was read

 private:
  void put(const std::string& path, index::FlatEntry file) {
    make_parents(path);
    tree_.entries[path] = std::move(file);
    contents_.erase(path);
  }
  void make_parents(const std::string& path) {
    for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      tree_.entries[path.substr(0, slash)] = index::FlatEntry();
      contents_.erase(path.substr(0, slash));
    }
  }

  index::FlatTree tree_;
  std::map<std::string, std::string, std::less<>> contents_;
};

}  // namespace varve::test
