#pragma once
// Files in memory, for tests and fuzzing of what reads them.
#include <set>
#include <utility>

#include "analyzer/packages/file_source.h"
#include "core/base/errors.h"

namespace varve::test {

using packages::FileSource;
using packages::HiddenFile;
using packages::RangeReader;
using packages::SourceLayer;
using packages::SourceFile;

class MemorySource final : public FileSource {
 public:
  // Parents are made on the way; what was there under the name gives way.
  MemorySource& add(const std::string& path, std::string_view content = "", std::uint32_t layer = 0) {
    SourceFile file;
    file.size = content.size();
    file.compressed_bytes = content.size() / 2;
    file.layer = layer;
    put(path, std::move(file));
    contents_[path] = content;
    return *this;
  }
  MemorySource& link(const std::string& path, const std::string& target) {
    SourceFile file;
    file.type = index::FileType::kSymlink;
    file.symlink_target = target;
    put(path, std::move(file));
    return *this;
  }
  MemorySource& folder(const std::string& path) {
    make_parents(path + "/x");
    return *this;
  }

  const std::map<std::string, SourceFile, std::less<>>& files() const override { return files_; }
  void read(const std::vector<std::string>& paths, std::uint64_t limit_bytes,
            const std::function<void(const std::string&, std::optional<Bytes>)>& got) const override {
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
  void read_ranges(const std::string& path, const std::function<void(const RangeReader&)>& use) const override {
    const auto found = contents_.find(path);
    if (found == contents_.end()) fail<NotFound>("{}: no such file", path);
    use([&](ByteRange range) {
      if (!range.fits_in(found->second.size())) fail<CorruptData>("{}: outside the file", path);
      return to_bytes(varve::as_bytes(found->second).subspan(range.offset, range.length));
    });
  }
  std::vector<SourceLayer> layers() const override { return layers_; }
  std::vector<HiddenFile> hidden() const override { return hidden_; }
  std::optional<Digest> image() const override { return std::nullopt; }
  std::map<std::string, std::string> environment() const override { return environment_; }
  std::string architecture() const override { return "amd64"; }

  std::vector<SourceLayer> layers_;
  std::vector<HiddenFile> hidden_;
  std::map<std::string, std::string> environment_;
  mutable std::set<std::string> asked_;  // what was read

 private:
  void put(const std::string& path, SourceFile file) {
    make_parents(path);
    files_[path] = std::move(file);
    contents_.erase(path);
  }
  void make_parents(const std::string& path) {
    for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      auto& folder = files_[path.substr(0, slash)];
      folder = SourceFile();
      folder.type = index::FileType::kDirectory;
      contents_.erase(path.substr(0, slash));
    }
  }

  std::map<std::string, SourceFile, std::less<>> files_;
  std::map<std::string, std::string, std::less<>> contents_;
};

}  // namespace varve::test
