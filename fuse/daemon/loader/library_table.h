#pragma once
// What a tree has that a loader loads: by where its head lies, for who sees reads of devices, and by the name that
// another library has for it.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/byte_range.h"
#include "core/index/format/erofs.h"
#include "fuse/daemon/loader/device_place.h"
#include "fuse/daemon/loader/named_file.h"

namespace varve::fuse {

struct LoadedFile {
  index::Nid file = 0;
  std::string folder;  // where it was found, "$ORIGIN": below the root, which is ""
};

// Safe to use from any thread. The tree must outlive it.
class LibraryTable {
 public:
  // So many of each are known, those that come first in the tree.
  static constexpr std::size_t kMaxHeads = 65'536;
  static constexpr std::size_t kMaxNames = 65'536;
  static constexpr std::size_t kMaxSearchFolders = 64;  // that a library names

  explicit LibraryTable(const index::ErofsReader& tree) : tree_(tree) {}
  // A name of the tree, those of one folder in a row; for the thread that makes the table.
  void add(const NamedFile& file, FileType type);
  // After the last add(), before all below.
  void finish();

  // What somebody loads who reads its first bytes: a program, by its folder "bin" or "sbin"; an extension module, a .so
  // that is not named lib* or ld-*; of those, what lies below site-packages or dist-packages, as Python loads them by
  // themselves (ctypes; the others every ldconfig reads, which loads none).
  struct Head {
    DevicePlace place;
    LoadedFile file;
    bool is_module = false;
    unsigned python_minor = 0;  // of a program that is a Python (python_start.h)
  };
  const std::vector<Head>& heads() const { return heads_; }  // by place
  // Those whose first byte lies in the range of the device.
  std::span<const Head> heads_in(std::uint32_t device, ByteRange device_range) const;
  // It is being loaded: true for the first who says so.
  bool note_begun(std::size_t head) const { return !begun_[head].exchange(true); }
  // Numbers of heads: of the extension modules in a folder, by place.
  std::vector<std::size_t> modules_in(const std::string& folder) const;

  // The regular file that ld.so(8) takes for a name that `asker` needs: a path, or in the folders that it names
  // ("$ORIGIN/../lib:/opt/lib"), else in those that every loader searches; else, as somebody may have named or loaded
  // it before, beside the asker, and then anywhere in the tree. Each folder that is tried takes one from `look_ups`; at
  // none left nothing is found.
  std::optional<LoadedFile> find(std::string_view name, const LoadedFile& asker, std::string_view search_path,
                                 std::size_t& look_ups) const;

 private:
  std::optional<LoadedFile> file_at(const std::string& folder, std::string_view name, std::size_t& look_ups) const;

  const index::ErofsReader& tree_;
  // Of the names that are added.
  std::string folder_;
  bool has_programs_ = false, is_in_package_ = false;

  std::vector<Head> heads_;
  std::unique_ptr<std::atomic<bool>[]> begun_;            // by head
  std::unordered_map<std::string, std::string> folders_;  // of the first file with that name
};

}  // namespace varve::fuse
