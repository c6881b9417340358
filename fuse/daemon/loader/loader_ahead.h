#pragma once
// Fetches what a loader is about to read, before it asks. ld.so(8) reads one library after the other, and of each the
// head, the dynamic section, tables, data: each a round trip and a fetch, some 250 of them for `import torch`. All of
// it follows from the files themselves:
//
//     a read of the head of a program or of an extension module (library_table.h, library_loads.h)
//       -> its head -> its dynamic section -> the names in it -> the libraries that these mean in this tree -> their
//          heads -> ...          of all libraries at once
//       -> when no more are found: what is read of each at load (library_layout.h), in the order in which ld.so
//          relocates them, the last one first
//       -> with a library's relocations: the data that they change; behind all tables: the code of its init functions,
//          and what that calls and points at (library_start.h). As ldconfig(8) reads heads, too, this waits, of a
//          library that Python packages bring for others to load by name, until somebody has read its relocations
//
// Python's own loader does the same with modules:
//
//     a read of the head of a module's bytecode (module_imports.h)
//       -> all of it -> the modules that it imports (import_table.h) -> theirs -> ...
//       -> of extension modules what their loads read, as above
//
// A Python begins with more than that, whatever it runs: a read of the head of its program brings all code of it and of
// its library, and the files that it reads as it starts (python_start.h).
//
// What is imported by other means no file tells:
//
//     a read of a second place of a package's modules (module_table.h) -> the rest of them
//     a load of a second extension module of a folder -> all of that folder
//
// And who seems to exit (exit_table.h) gets what the init functions left for that, of all libraries.
//
// All as read-ahead: behind whoever waits. Nothing is fetched because an image is mounted. A read of what a start-up
// pack brings begins nothing: what such a start reads was learnt, and it is in the pack.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/index/format/erofs.h"
#include "fuse/daemon/loader/exit_table.h"
#include "fuse/daemon/loader/import_table.h"
#include "fuse/daemon/loader/library_table.h"
#include "fuse/daemon/loader/loader_events.h"
#include "fuse/daemon/loader/module_table.h"
#include "fuse/mount/stream_file.h"

namespace varve::fuse {

// Of one tree, whatever it is mounted by. Safe to use from any thread.
class LoaderAhead {
 public:
  // devices[i] is device i+1 of the tree, with its packs. The tree must live until end().
  LoaderAhead(const index::ErofsReader& tree, std::vector<std::shared_ptr<StreamFile>> devices);
  ~LoaderAhead() { end(); }
  LoaderAhead(const LoaderAhead&) = delete;
  LoaderAhead& operator=(const LoaderAhead&) = delete;

  // From now on reads are looked at, those of before are not. To look through the tree takes some 30 ms of a core:
  // that begins now, or with the first read, where most starts are learnt.
  enum class LookThrough : std::uint8_t { kNow, kAtFirstRead };
  void begin(LookThrough when = LookThrough::kNow);
  // Fetches no more, and waits for nothing that is under way. After begin(), never beside it.
  void end() {
    thread_ = {};
    imports_thread_ = {};
  }
  // Somebody reads that of a device, which no pack brings. Costs next to nothing, as most reads are of no head and of
  // no module.
  void note_read(std::uint32_t device, ByteRange device_range);

 private:
  struct Imports {
    ModuleTable packages;
    ImportTable modules;
  };

  void note_load(const LibraryTable& libraries, std::uint32_t device, ByteRange device_range);
  void note_relocating(std::uint32_t device, ByteRange device_range);
  void note_import(const Imports& imports, std::uint32_t device, ByteRange device_range);
  std::jthread start(void (LoaderAhead::*run)(const std::stop_token& stop));
  void run(const std::stop_token& stop);
  void find_libraries(const std::stop_token& stop);
  void find_imports(const std::stop_token& stop);

  const index::ErofsReader& tree_;
  const std::vector<std::shared_ptr<StreamFile>> devices_;
  const std::shared_ptr<LoaderEvents> events_;  // outlives this while something is under way
  std::atomic<bool> begun_ = false;
  LookThrough when_ = LookThrough::kNow;
  // Libraries are known first: every program begins with them.
  std::unique_ptr<const LibraryTable> libraries_;  // of the thread until `known_libraries_`
  std::unique_ptr<const Imports> imports_;         // of the other one, likewise
  std::atomic<const LibraryTable*> known_libraries_ = nullptr;
  std::atomic<const Imports*> known_imports_ = nullptr;
  ExitTable exits_;
  std::once_flag once_;
  std::jthread thread_;
  std::jthread imports_thread_;  // started by the other one
};

// A device of the tree whose readers are seen by a LoaderAhead.
class WatchedFile final : public StreamFile {
 public:
  WatchedFile(std::shared_ptr<StreamFile> file, std::uint32_t device, std::shared_ptr<LoaderAhead> ahead)
      : file_(std::move(file)), device_(device), ahead_(std::move(ahead)) {}
  std::uint64_t size() const override { return file_->size(); }
  void find_pieces(ByteRange range, std::uint64_t into, std::vector<StreamPiece>& pieces) const override {
    const auto others = pieces.size();
    file_->find_pieces(range, into, pieces);
    if (std::none_of(pieces.begin() + std::ptrdiff_t(others), pieces.end(), [](const auto& one) { return one.learnt; }))
      ahead_->note_read(device_, range);
  }

 private:
  std::shared_ptr<StreamFile> file_;
  std::uint32_t device_;
  std::shared_ptr<LoaderAhead> ahead_;
};

}  // namespace varve::fuse
