#pragma once
// A disk that remembers what was done to it, may lose what was not synced, and fails when it is told. A program that
// links this has its file calls (open, read, write, fsync, rename, ...) pass through here, those of libraries included;
// only what lies below the folder that is watched is looked at. One watch at a time; calls from any thread.
//
// What a crash may leave, as ALICE and dm-log-writes have it: writes, truncations and holes of a file that no fsync or
// fdatasync of it followed are lost or not, each for itself, and a write may be torn at 512 bytes. Names (new files,
// renames, removals) go in order: the last ones are lost, from none to all of those that no sync of the file or of its
// folder followed.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"

namespace varve::test {

// One call that changed the disk, or asked it to keep what was changed.
struct DiskStep {
  enum class Kind : std::uint8_t { kWrite, kResize, kPunch, kSync, kName, kUnname, kRename, kFolder };
  Kind kind = Kind::kWrite;
  int file = 0;               // -1: a folder
  std::uint64_t offset = 0;   // kWrite, kPunch; kResize: the size
  std::uint64_t length = 0;   // kPunch
  Bytes bytes = {};           // kWrite
  std::string path = {};      // below the folder: kName, kUnname, kRename, kFolder, kSync of a folder
  std::string new_path = {};  // kRename
};

// Files, their content and their names.
struct DiskState {
  std::map<int, Bytes> files;
  std::map<std::string, int> names;
  std::set<std::string> folders;

  void apply(const DiskStep& step);
  // The same disk has the same digest, whatever led to it.
  Digest digest() const;
  void write_to(const std::filesystem::path& folder) const;
};

class DiskRecording {
 public:
  DiskRecording(DiskState before, std::vector<DiskStep> steps) : before_(std::move(before)), steps_(std::move(steps)) {}

  std::size_t steps() const { return steps_.size(); }
  // Every disk that a crash after some of the steps may leave, each once with the fewest and the most steps that lead
  // to it: of what was not synced all, nothing, all but one, one alone, all but two, one torn at its beginning or end.
  struct Crash {
    std::size_t steps = 0;     // that were done before it
    bool power_failed = true;  // false: only the process died, so that nothing is lost
    const DiskState& disk;
    std::string story;  // what was lost, for messages
  };
  struct Choice {
    bool pairs = true;               // also two steps at once
    std::size_t at_most = SIZE_MAX;  // of more disks some are taken, the same each time
  };
  void for_each_crash(const std::function<void(const Crash&)>& visit, const Choice& choice) const;
  void for_each_crash(const std::function<void(const Crash&)>& visit) const { for_each_crash(visit, Choice()); }

 private:
  class Crashes;
  const DiskState before_;
  const std::vector<DiskStep> steps_;
};

// What goes wrong with one call.
struct DiskFault {
  std::size_t call = 0;  // of those that a watch counts, from 0
  int error = 0;         // errno; 0: a write that takes only half of its bytes
  bool sticky = false;   // all later calls that need room fail, too: a full disk stays full
  // Of the reads, which are counted apart; those of mapped files are none. 0 is then a read of half of what was wanted,
  // and sticky a bad place: whoever reads any of it later fails, until it is written over.
  bool of_reads = false;
};

// Watches a folder while it lives. `fault` happens once the watch has counted so many calls.
class DiskWatch {
 public:
  explicit DiskWatch(const std::filesystem::path& folder);
  DiskWatch(const std::filesystem::path& folder, const DiskFault& fault);
  ~DiskWatch();
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

  // Steps so far: what was promised now holds for crashes after at least so many.
  std::size_t steps() const;
  // Calls so far that a fault may befall.
  std::size_t calls() const;
  std::size_t reads() const;
  // Ends the recording.
  DiskRecording take();

 private:
  void begin(const std::filesystem::path& folder);
};

// While it lives syncs of this process return at once: for what looks at thousands of disks that are thrown away.
class NoSync {
 public:
  NoSync();
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
};

}  // namespace varve::test
