#pragma once
// ld.so(8), ahead of itself: from a file that is being loaded to the libraries that it needs, to what is read of each
// at load and what its init functions use; in which order, loader_ahead.h tells.
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/index/elf/library_layout.h"
#include "core/index/elf/library_start.h"
#include "core/index/format/erofs.h"
#include "fuse/daemon/loader/ahead_fetcher.h"
#include "fuse/daemon/loader/exit_table.h"
#include "fuse/daemon/loader/library_table.h"
#include "fuse/daemon/loader/loader_events.h"

namespace varve::fuse {

// Of the thread alone.
class LibraryLoads {
 public:
  // Over the life of one: a hostile tree can have no more of each.
  static constexpr std::size_t kMaxLibraries = 16'384;
  static constexpr std::size_t kMaxLookUps = 65'536;  // folders tried for names

  // These outlive it. What libraries leave for the exit goes to `exits`.
  LibraryLoads(const index::ErofsReader& tree, const LibraryTable& known, AheadFetcher& fetcher, LoaderEvents& events,
               ExitTable& exits)
      : tree_(tree), known_(known), fetcher_(fetcher), events_(events), exits_(exits) {}

  // Somebody reads that head, told once.
  void begin(std::size_t head);
  // It will be loaded: it is begun behind those that are under way, if it is an extension module.
  void foresee(index::Nid file);
  // A loader reads its relocations.
  void note_relocating(std::size_t library);
  void take(const LoaderEvents::Arrival& arrival);
  // What can be done before something else comes.
  void go_on();
  // Heads of Pythons that were begun, once what they load is planned; told once.
  std::vector<std::size_t> take_pythons() { return std::exchange(planned_pythons_, {}); }

 private:
  using LibraryLayout = index::LibraryLayout;
  using Kind = LoaderEvents::Kind;
  enum class Step : std::uint8_t { kHead, kDynamic, kNames, kDone };
  struct Library {
    LoadedFile found;
    std::uint64_t bytes = 0;
    std::vector<index::DeviceRun> runs;
    Step step = Step::kHead;
    std::optional<LibraryLayout> layout;
    Bytes dynamic;
    std::vector<LibraryLayout::Name> names;
    std::vector<std::size_t> needed;  // in order
    bool planned = false;             // its tables
    bool is_loaded = false;           // and not only looked at
    bool is_python = false;           // or the library that such a program is
    bool has_much_data = false;
    ByteRange relocations_left = {};
    std::size_t tables_left = 0, code_left = 0;
    std::size_t turn = 0;                      // of its init functions
    std::optional<index::LibraryStart> start;  // from then on, until its code was looked at
  };
  struct Bulk {
    Kind kind;
    std::size_t library;
    ByteRange in_file;
  };

  // Which libraries there are.
  const std::string& begin_alone(std::size_t head);
  void begin_others_in(const std::string& folder);
  std::optional<std::size_t> add(const LoadedFile& file);
  bool next_step(std::size_t number);
  bool read_head(Library& library, std::size_t number);
  bool read_dynamic(Library& library, std::size_t number);
  void read_names(Library& library);
  void need(Library& library, std::string_view name, std::string_view search_path);

  // What is read of each.
  void plan_tables();
  void add_code(std::size_t number);
  std::size_t want_in_parts(Kind kind, std::size_t number, ByteRange in_file);
  void note_loaded(std::size_t number);
  void await_relocating(Library& library, std::size_t number);
  void read_relocations(Library& library, std::size_t number);
  bool begin_next_init();
  void read_init_code(Library& library, std::size_t number);

  void fetch(std::size_t number, const std::vector<ByteRange>& in_file, Kind kind = Kind::kStep);
  std::optional<Bytes> read(const Library& library, ByteRange in_file) const {
    return fetcher_.read(library.runs, in_file);
  }

  const index::ErofsReader& tree_;
  const LibraryTable& known_;
  AheadFetcher& fetcher_;
  LoaderEvents& events_;
  ExitTable& exits_;
  std::deque<Library> found_;
  std::unordered_map<index::Nid, std::size_t> by_file_;
  std::vector<std::optional<std::size_t>> roots_;       // whose libraries are not all known
  std::vector<std::size_t> pythons_, planned_pythons_;  // heads; of the former only that was begun
  std::size_t python_count_ = 0;
  std::vector<std::size_t> foreseen_;                      // heads
  std::unordered_map<std::string, std::size_t> begun_in_;  // by folder, how many heads somebody has read
  std::size_t unfinished_ = 0;                             // steps
  std::deque<Bulk> bulk_;
  std::uint64_t bulk_under_way_ = 0;
  std::deque<std::size_t> inits_;  // libraries whose init functions were not looked for, as they will run
  std::size_t turns_ = 0;
  std::size_t look_ups_ = kMaxLookUps;
};

}  // namespace varve::fuse
