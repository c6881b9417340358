#pragma once
// Python's loader, ahead of itself: the bytecode of a module that is being imported, then of those that it imports, by
// what came (import_table.h), then of theirs.
#include <cstdint>
#include <deque>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/index/format/erofs.h"
#include "fuse/daemon/loader/ahead_fetcher.h"
#include "fuse/daemon/loader/import_table.h"
#include "fuse/daemon/loader/library_table.h"
#include "fuse/daemon/loader/loader_events.h"

namespace varve::fuse {

// Of the thread alone.
class ModuleImports {
 public:
  // Over the life of one: a hostile tree can have no more.
  static constexpr std::size_t kMaxImported = 32'768;

  // These outlive it.
  ModuleImports(const index::ErofsReader& tree, AheadFetcher& fetcher)
      : tree_(tree), fetcher_(fetcher), search_(tree) {}

  // A Python was begun: it reads these, whatever it runs.
  void begin_python(const LibraryTable::Head& python);
  // Where modules are is known from now on; it outlives this. Before it, what has come waits for it.
  void know(const ImportTable& modules);
  // Of the modules that are known: somebody reads its head.
  void begin(std::size_t module);
  void take(const LoaderEvents::Arrival& arrival);
  // Asks for as many as may be under way.
  void go_on();
  // Extension modules that will be loaded, told once.
  std::vector<index::Nid> take_libraries() { return std::exchange(libraries_, {}); }

 private:
  struct Module {
    ImportTable::Imported file;
    std::vector<index::DeviceRun> runs;
    std::uint64_t bytes = 0;
  };
  void fetch_bytecode(const ImportTable::Imported& module);
  void fetch_imported(const ImportTable::Imported& found);
  void look_into(const LoaderEvents::Arrival& arrival);

  const index::ErofsReader& tree_;
  AheadFetcher& fetcher_;
  const ImportTable* known_ = nullptr;
  ImportTable::Search search_;
  std::deque<Module> modules_;  // in turn; empty once they were looked at
  std::size_t next_module_ = 0;
  std::unordered_set<index::Nid> known_files_;
  std::uint64_t under_way_ = 0;                                     // stream side
  static constexpr std::uint64_t kMaxImportedBytes = 512ull << 20;  // wanted, likewise
  std::uint64_t budget_ = kMaxImportedBytes;
  std::vector<LoaderEvents::Arrival> early_;
  std::vector<index::Nid> libraries_;
};

}  // namespace varve::fuse
