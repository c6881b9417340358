#pragma once
// Which units of a sparse data file are on disk: spans of a layer, blocks of a windows blob, contents of a layer. An
// append-only file of its own, so that recording a group of units costs one small write. On disk:
// docs/formats/store.md.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/digest.h"
#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// Units [first, first + count).
struct UnitRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const UnitRun&) const = default;
};
// Sorts the units and joins neighbours.
std::vector<UnitRun> runs_of(std::vector<std::uint32_t> units);

// What a log is about. A log whose identity differs says nothing about our units.
struct PresenceIdentity {
  enum class Kind : std::uint32_t { kSpans = 1, kWindowBlocks = 2, kUnits = 3 };
  Kind kind = Kind::kSpans;
  Digest object;  // the layer, or its windows blob
  Digest cut;     // how the object is cut into units
  std::uint64_t units = 0;
  std::uint64_t data_bytes = 0;  // size of the data file
};

// Not shared between threads.
class PresenceLog {
 public:
  enum class Found {
    kNothing,   // there was no log
    kSame,      // `present` is what is on disk
    kOtherCut,  // the same object, cut into other units: its bytes may be good, but must be digested before use
    kUnusable,  // `reason` says why: the data beside it must not be used
  };
  struct Opened {
    std::unique_ptr<PresenceLog> log;
    Found found = Found::kNothing;
    std::string reason;
    std::vector<bool> present;  // one per unit
  };

  // Opens the log, or begins an empty one in place of what cannot be used. Records after the first torn one are
  // dropped; `reason` then says so. Throws std::system_error.
  static Opened open(const std::filesystem::path& path, const PresenceIdentity& identity);

  // Records units as present or as gone, durably: when this returns they are so after a crash. If it throws
  // (std::system_error), the log is as before, and the same call may be tried again.
  void append(const std::vector<UnitRun>& runs, bool present);

 private:
  PresenceLog(std::filesystem::path path, const PresenceIdentity& identity);
  void begin(const std::vector<UnitRun>& present);
  Found load(std::vector<bool>& present, std::string& reason);
  std::uint64_t replay(const Bytes& content, std::vector<bool>& present, std::string& reason);

  std::filesystem::path path_;
  PresenceIdentity identity_;
  Digest salt_;  // the header's digest: a group copied from another log does not check
  UniqueFd fd_;
  std::uint64_t end_ = 0;
  std::uint64_t groups_ = 0;
};

}  // namespace varve::fuse
