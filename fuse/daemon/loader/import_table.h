#pragma once
// Which modules a module imports, as files of a tree: the names in its bytecode (bytecode_imports.h), looked for as
// Python's own finders do (importlib's PathFinder, PEP 328 and 420), in the folders that hold packages in this tree.
// What sys.path is for a program nobody asks: of several folders that have a name, the nearest to the module that
// imports it counts.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/index/format/erofs.h"
#include "core/index/python/bytecode_imports.h"
#include "fuse/daemon/loader/named_file.h"

namespace varve::fuse {

class ImportTable {
 public:
  // Python 3.11 and later have the modules in the program itself that they begin with (Python/frozen.c).
  static constexpr unsigned kFirstWithFrozen = 11;
  static constexpr std::size_t kMaxModules = 262'144;     // with bytecode, those that come first in the tree
  static constexpr std::size_t kMaxRoots = 64;            // folders that hold packages, likewise
  static constexpr std::size_t kMaxTextBytes = 16 << 20;  // of all their folders and names

  // A module's bytecode.
  struct Module {
    DevicePlace place;
    index::Nid file = 0;
    std::uint32_t folder = 0;  // number
    std::uint32_t name = 0;    // where it begins in the names
  };
  // A file that an import reads.
  struct Imported {
    enum class Kind : std::uint8_t { kBytecode, kLibrary, kSource };
    Kind kind = Kind::kBytecode;
    index::Nid file = 0;
    std::string folder = {};  // that it lies in, below the tree's root
    std::string name = {};
  };

  // A regular file of the tree, those of one folder in a row; for the thread that makes the table.
  void add(const NamedFile& file);
  // After the last add(), before all below, which is safe to use from any thread.
  void finish();

  // Those whose first byte lies in that range.
  std::span<const Module> modules_in(std::uint32_t device, ByteRange device_range) const;
  const std::vector<Module>& modules() const { return modules_; }
  // It is being imported: true for the first who says so.
  bool note_begun(std::size_t module) const { return !begun_[module].exchange(true); }
  Imported file_of(const Module& module) const {
    return {.file = module.file, .folder = folders_[module.folder], .name = names_.c_str() + module.name};
  }

  // Who goes from module to module: what was found is not told again.
  class Search {
   public:
    // Behind them nothing is found.
    static constexpr std::size_t kMaxLookUps = 1'000'000;      // of parts of names in folders
    static constexpr std::size_t kMaxTextBytes = 32ull << 20;  // of names in folders that are looked into, and of paths
    explicit Search(const index::ErofsReader& tree) : tree_(tree) {}

   private:
    friend class ImportTable;
    struct Entry {
      index::Nid file = 0;
      FileType type = FileType::kRegular;
    };
    using Folder = std::unordered_map<std::string, Entry>;

    enum class Is : std::uint8_t { kAbsent, kModule, kPackage, kFolder };  // the last without __init__

    // Null if there is none. What a symlink leads to is told, not the link.
    const Folder* folder(const std::string& path);
    bool has_room(std::size_t bytes);

    const index::ErofsReader& tree_;
    std::unordered_map<std::string, std::optional<Folder>> folders_;
    std::unordered_map<std::string, Is> found_;  // by path
    std::size_t look_ups_ = 0;
    std::size_t text_bytes_ = 0;
  };
  // What that bytecode imports, in order; names that are not in the tree are left out. Throws as ErofsReader.
  std::vector<Imported> find(const Imported& importer, const std::vector<index::PythonImport>& imports,
                             Search& search) const;

 private:
  class Finder;

  std::vector<Module> modules_;                 // by place
  std::unique_ptr<std::atomic<bool>[]> begun_;  // by module
  std::vector<std::string> folders_;
  std::string names_;  // each with its end
  std::set<std::string> roots_;
  std::size_t text_bytes_ = 0;
};

}  // namespace varve::fuse
