#pragma once
// Which of a tree's Python modules are imported together, by where they lie: those of one package. An import reads one
// small file after the other, each a round trip, in an order that only Python knows; most of a package's files are read
// once two places of it were.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/byte_range.h"
#include "core/index/format/erofs.h"
#include "fuse/daemon/loader/named_file.h"

namespace varve::fuse {

// A package is a folder of site-packages or dist-packages with all below it, likewise one of the standard library;
// elsewhere a folder. Source and bytecode are two groups, as whoever reads the one seldom reads the other. What lies in
// folders "test" and "tests" belongs to none. A group, too, are the entry points of what is installed in one place:
// importlib.metadata reads them one after the other.
class ModuleTable {
 public:
  static constexpr std::size_t kMaxModules = 262'144;  // that are known, those that come first in the tree
  // Stream side. A package that has more is taken folder by folder, a folder that has more is nobody's.
  static constexpr std::uint64_t kMaxGroupBytes = 16 << 20;
  // Two reads nearer than this are of one place: a span of that length comes at once, whoever reads of it.
  static constexpr std::uint64_t kApart = 256 << 10;

  // A regular file of the tree, those of one folder in a row; for the thread that makes the table.
  void add(const NamedFile& file);
  // After the last add(), before all below.
  void finish();

  // Somebody reads that of a device. The group of which a second place is read now, told once. Safe to use from any
  // thread.
  std::optional<std::uint32_t> note_read(std::uint32_t device, ByteRange device_range) const;
  // Of a group, by place.
  std::vector<DeviceExtent> extents_of(std::uint32_t group) const;

 private:
  struct Module {
    DevicePlace place;
    std::uint64_t length = 0;
    std::uint32_t folder = 0;
  };
  struct Folder {
    std::string package;
    std::uint64_t bytes = 0;
  };
  struct Extent : DeviceExtent {
    std::uint32_t group = 0;
  };
  std::uint32_t number_of(const std::string& key, std::string package);
  std::optional<std::uint32_t> group_at(std::uint32_t device, ByteRange device_range) const;

  std::vector<Module> modules_;  // these three until finish()
  std::vector<Folder> folders_;
  std::map<std::string, std::uint32_t> folder_numbers_;
  std::string folder_;                                            // of the names that are added
  std::optional<std::uint32_t> source_number_, bytecode_number_;  // of that
  std::vector<Extent> extents_;                                   // by place, not overlapping
  // By group: the first place that was read, plus 1; 0: none; kTold: no more is noted.
  std::unique_ptr<std::atomic<std::uint64_t>[]> first_reads_;
};

}  // namespace varve::fuse
