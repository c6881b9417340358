#include "fuse/daemon/loader/loader_ahead.h"

#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/index/elf/library_layout.h"
#include "core/index/elf/library_start.h"
#include "fuse/daemon/loader/loader_events.h"
#include "fuse/daemon/loader/python_start.h"
#include "fuse/daemon/pages/shown_files.h"

namespace varve::fuse {
namespace {

using index::LibraryLayout;

constexpr int kNice = 10;  // Python runs beside it
// The kernel asks for as much around what a loader touches, of the same file.
constexpr std::uint64_t kAround = 64 << 10;
// Stream side, of tables, data and code: what the next load begins with goes behind no more than this.
constexpr std::uint64_t kBulkUnderWay = 32 << 20;
constexpr std::uint64_t kFetchedAtOnce = 1 << 20;  // of tables, so that what has come can be looked at
// A smaller table may be read with what lies in front of it.
constexpr std::uint64_t kManyRelocations = 512 << 10;
constexpr std::uint64_t kReadAtOnce = index::LibraryStart::kEntryBytes << 14;
constexpr std::size_t kMaxEarlyReads = 4096;
// Stream side. A folder with more of extension modules has some that nobody loads together.
constexpr std::uint64_t kMaxFolderBytes = 64 << 20;
constexpr std::size_t kMaxPythons = 16;                    // over the life of one
constexpr std::uint64_t kMaxPythonBytes = 64 << 20;        // of its program or its library
constexpr std::uint64_t kMaxBytecodeBytes = 8 << 20;       // of a larger module nothing is known
constexpr std::uint64_t kBytecodeUnderWay = 4 << 20;       // stream side, as kBulkUnderWay
constexpr std::uint64_t kMaxImportedBytes = 512ull << 20;  // wanted, over the life of one

bool is_worth_fetching(const StreamPiece& piece) { return !piece.is_elsewhere() && !piece.between_files; }

}  // namespace

// Of the thread alone.
class LoaderAhead::Work {
 public:
  explicit Work(LoaderAhead& ahead) : ahead_(ahead), search_(ahead.tree_) {}

  void begin(std::size_t head) {
    const auto& folder = begin_alone(head);
    if (libraries().heads()[head].is_module && ++begun_in_[folder] == 2) begin_others_in(folder);
  }

  void begin_import(std::size_t module) {
    const auto& modules = ahead_.imports_->modules;
    fetch_bytecode(modules.file_of(modules.modules()[module]));
  }

  void fetch_modules(std::uint32_t group) {
    const auto parts = ahead_.imports_->packages.extents_of(group);
    log::debug("a package is being imported: {} parts of it are fetched ahead", parts.size());
    fetch_now(parts);
  }

  void fetch_at_exit(const std::vector<DeviceExtent>& parts) {
    log::debug("a process exits: {} parts of libraries are fetched ahead", parts.size());
    fetch_now(parts);
  }

  void begin_relocating(std::size_t library) {
    found_[library].is_loaded = true;
    note_loaded(library);
  }

  void take(const Events::Arrival& arrival) {
    if (arrival.kind == Kind::kBytecode) return take_bytecode_in_time(arrival);
    auto& library = found_[arrival.library];
    if (arrival.kind != Kind::kStep) {
      bulk_under_way_ -= arrival.bytes;
      if (arrival.kind == Kind::kTables) {
        --library.tables_left;
        read_relocations(library, arrival.library);
      }
      if (arrival.kind == Kind::kInitCode && --library.code_left == 0) read_init_code(library, arrival.library);
      return;
    }
    if (arrival.failed || !next_step(arrival.library)) library.step = Step::kDone;
    if (library.step == Step::kDone) --unfinished_;
  }

  void imports_came() {
    for (const auto& arrival : std::exchange(early_bytecode_, {})) take_bytecode(arrival);
  }

  // What can be done before something else comes.
  void go_on() {
    ask_for_modules();
    if (unfinished_ == 0 && !roots_.empty()) plan_tables();
    // Behind loads that have begun: each is planned once all that were begun with it are known.
    if (unfinished_ == 0)
      for (const auto head : std::exchange(foreseen_, {})) begin(head);
    do {
      while (!bulk_.empty() && bulk_under_way_ < kBulkUnderWay) {
        const auto [kind, library, range] = bulk_.front();
        bulk_.pop_front();
        bulk_under_way_ += range.length;
        fetch(library, {range}, kind);
      }
    } while (bulk_.empty() && begin_next_init());
    ask_for_modules();  // of a Python that begins: behind what its loader reads
  }

 private:
  using Kind = Events::Kind;
  enum class Step : std::uint8_t { kHead, kDynamic, kNames, kDone };

  void ask_for_modules() {
    for (; next_module_ < modules_.size() && bytecode_under_way_ < kBytecodeUnderWay; ++next_module_) {
      const auto& module = modules_[next_module_];
      bytecode_under_way_ += module.bytes;
      fetch(pieces_of(module.runs, ahead_.devices_, {0, module.bytes}),
            {Kind::kBytecode, next_module_, module.bytes, false});
    }
  }

  const std::string& begin_alone(std::size_t head) {
    const auto& [place, file, is_module, python_minor] = libraries().heads()[head];
    const auto root = add(file);
    roots_.push_back(root);
    if (root && is_module) found_[*root].is_loaded = true;
    if (root && python_minor != 0 && python_count_ < kMaxPythons && !found_[*root].is_python) {
      found_[*root].is_python = true;
      ++python_count_;
      pythons_.push_back(head);
    }
    return file.folder;
  }

  // Of the extension modules in one folder most are loaded by an import that loads two: pandas/_libs has 45.
  void begin_others_in(const std::string& folder) {
    const auto others = libraries().modules_in(folder);
    std::uint64_t bytes = 0;
    for (const auto head : others) bytes += ahead_.tree_.inode(libraries().heads()[head].file.file).size;
    if (bytes > kMaxFolderBytes) return;
    for (const auto head : others)
      if (!ahead_.loads_->told[head].exchange(true)) begin_alone(head);
  }

  // All of it, in its turn; then what it imports.
  void fetch_bytecode(const ImportTable::Imported& module) {
    const auto bytes = ahead_.tree_.inode(module.file).size;
    if (bytes == 0 || bytes > kMaxBytecodeBytes || bytes > import_budget_ || modules_.size() == kMaxImported) return;
    if (!known_modules_.insert(module.file).second) return;
    import_budget_ -= bytes;
    modules_.push_back({.file = module, .runs = ahead_.tree_.runs(module.file), .bytes = bytes});
  }

  // The modules that a Python begins with may be here before it is known where others are.
  void take_bytecode_in_time(const Events::Arrival& arrival) {
    if (ahead_.known_imports_.load(std::memory_order_acquire) == nullptr)
      early_bytecode_.push_back(arrival);
    else
      take_bytecode(arrival);
  }

  void take_bytecode(const Events::Arrival& arrival) {
    bytecode_under_way_ -= arrival.bytes;
    const auto module = std::exchange(modules_[arrival.library], {});
    try {
      const auto bytes = arrival.failed ? std::nullopt : read(module.runs, {0, module.bytes});
      const auto imports = bytes ? index::imports_of(*bytes) : std::nullopt;
      if (!imports) return;
      for (const auto& found : ahead_.imports_->modules.find(module.file, *imports, search_)) fetch_imported(found);
    } catch (const CorruptData& error) {
      log::debug("what {} imports is not fetched ahead: {}", module.file.name, error.what());
    }
  }

  void fetch_imported(const ImportTable::Imported& found) {
    const auto& tree = ahead_.tree_;
    switch (found.kind) {
      case ImportTable::Imported::Kind::kBytecode:
        return fetch_bytecode(found);
      case ImportTable::Imported::Kind::kLibrary:
        return begin_library(found.file);
      case ImportTable::Imported::Kind::kSource:
        return fetch_now(pieces_of(tree.runs(found.file), ahead_.devices_, {0, tree.inode(found.file).size}));
    }
  }

  void begin_library(index::Nid file) {
    const auto runs = ahead_.tree_.runs(file);
    if (runs.empty() || runs.front().file_offset != 0) return;
    for (const auto& head : libraries().heads_in(runs.front().device, {runs.front().device_offset, 1})) {
      const auto number = std::size_t(&head - libraries().heads().data());
      if (!ahead_.loads_->told[number].exchange(true)) foreseen_.push_back(number);
    }
  }

  struct Module {
    ImportTable::Imported file;
    std::vector<index::DeviceRun> runs;
    std::uint64_t bytes = 0;
  };
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

  std::optional<std::size_t> add(const LoadedFile& file) {
    if (const auto known = by_file_.find(file.file); known != by_file_.end()) return known->second;
    if (found_.size() == kMaxLibraries) return std::nullopt;
    const auto number = found_.size();
    by_file_[file.file] = number;
    auto& library = found_.emplace_back();
    library.found = file;
    library.bytes = ahead_.tree_.inode(file.file).size;
    library.runs = ahead_.tree_.runs(file.file);
    ++unfinished_;
    fetch(number, {{0, std::min<std::uint64_t>(library.bytes, LibraryLayout::kHeadBytes)}});
    return number;
  }

  // False if it tells nothing more.
  bool next_step(std::size_t number) {
    auto& library = found_[number];
    if (library.step == Step::kHead) return read_head(library, number);
    if (library.step == Step::kDynamic) return read_dynamic(library, number);
    if (library.step == Step::kNames) read_names(library);
    return false;
  }

  bool read_head(Library& library, std::size_t number) {
    const auto head = read(library, {0, std::min<std::uint64_t>(library.bytes, LibraryLayout::kHeadBytes)});
    if (!head) return false;
    library.layout = LibraryLayout::of(*head, library.bytes);
    if (!library.layout) return false;
    if (const auto& interpreter = library.layout->interpreter(); !interpreter.empty()) need(library, interpreter, "");
    if (library.layout->dynamic_section().length == 0) return false;
    library.step = Step::kDynamic;
    fetch(number, {library.layout->dynamic_section()});
    return true;
  }

  bool read_dynamic(Library& library, std::size_t number) {
    auto dynamic = read(library, library.layout->dynamic_section());
    if (!dynamic) return false;
    library.dynamic = std::move(*dynamic);
    library.names = library.layout->names(library.dynamic);
    if (library.names.empty()) return false;
    library.step = Step::kNames;
    std::vector<ByteRange> ranges;
    for (const auto& name : library.names) ranges.push_back(name.in_file);
    fetch(number, joined_ranges(std::move(ranges)));
    return true;
  }

  void read_names(Library& library) {
    std::vector<std::string> needed;
    std::string search_path;
    for (const auto& name : std::exchange(library.names, {})) {
      const auto bytes = read(library, name.in_file);
      const auto text = bytes ? LibraryLayout::text_of(*bytes) : std::nullopt;
      if (!text) continue;
      if (name.kind == LibraryLayout::Kind::kNeeded)
        needed.push_back(*text);
      else
        search_path = *text;
    }
    for (const auto& name : needed) need(library, name, search_path);
  }

  void need(Library& library, std::string_view name, std::string_view search_path) {
    const auto found = libraries().find(name, library.found, search_path, look_ups_);
    const auto other = found ? add(*found) : std::nullopt;
    if (!other) return;
    library.needed.push_back(*other);
    if (library.is_python && name.starts_with("libpython3.")) found_[*other].is_python = true;
  }

  // As ld.so maps them, each before what it needs; relocated in the reverse of that.
  void plan_tables() {
    std::vector<std::size_t> order;
    for (const auto root : std::exchange(roots_, {}))
      if (root && !std::exchange(found_[*root].planned, true)) order.push_back(*root);
    for (std::size_t i = 0; i < order.size(); ++i)
      for (const auto needed : found_[order[i]].needed)
        if (!std::exchange(found_[needed].planned, true)) order.push_back(needed);
    for (const auto number : order) note_loaded(number);
    std::ranges::reverse(order);
    std::size_t ranges = 0;
    for (const auto number : order) {
      auto& library = found_[number];
      if (!library.layout) continue;
      const auto dynamic = std::exchange(library.dynamic, {});
      const auto tables = library.layout->read_at_load(dynamic);
      if (tables.empty()) continue;
      for (const auto& range : tables) library.tables_left += want_in_parts(Kind::kTables, number, range);
      ranges += tables.size();
      library.start.emplace(*library.layout, dynamic);
      library.relocations_left = library.start->relocations();
      library.has_much_data = library.layout->has_much_data(dynamic);
      inits_.push_back(number);
      await_relocating(library, number);
    }
    log::debug("a loader is about to read {} files: {} parts are fetched ahead", order.size(), ranges);
    for (const auto number : order)
      if (found_[number].is_python) add_code(number);
    for (const auto head : std::exchange(pythons_, {})) begin_python(head);
  }

  // Its start goes all over it.
  void add_code(std::size_t number) {
    if (!found_[number].layout) return;
    auto bytes = kMaxPythonBytes;
    for (const auto& load : found_[number].layout->loads()) {
      const ByteRange wanted{load.in_file.offset, std::min(load.in_file.length, bytes)};
      want_in_parts(Kind::kData, number, wanted);
      bytes -= wanted.length;
    }
  }

  // How many they are.
  std::size_t want_in_parts(Kind kind, std::size_t number, ByteRange in_file) {
    std::size_t parts = 0;
    for (; in_file.length > 0; ++parts) {
      const auto length = std::min(in_file.length, kFetchedAtOnce);
      bulk_.push_back({kind, number, {in_file.offset, length}});
      in_file = {in_file.offset + length, in_file.length - length};
    }
    return parts;
  }

  void begin_python(std::size_t head) {
    const auto& python = libraries().heads()[head];
    for (const auto& file : read_by_python(ahead_.tree_, python.file.folder, python.python_minor)) fetch_bytecode(file);
  }

  // What a loaded one needs is loaded; programs are.
  void note_loaded(std::size_t number) {
    for (std::vector<std::size_t> left{number}; !left.empty();) {
      auto& library = found_[left.back()];
      left.pop_back();
      if (library.layout && !library.layout->interpreter().empty()) library.is_loaded = true;
      if (!library.is_loaded) continue;
      for (const auto needed : library.needed)
        if (!std::exchange(found_[needed].is_loaded, true)) left.push_back(needed);
    }
  }

  void await_relocating(Library& library, std::size_t number) {
    const auto table = library.start->relocations();
    if (table.length < kManyRelocations) library.is_loaded = true;
    if (library.is_loaded) return;
    const ByteRange half{table.offset + table.length / 2, table.length - table.length / 2};
    const std::lock_guard guard(ahead_.events_->mutex);
    for (const auto& part : places_of(library.runs, half))
      ahead_.events_->awaited[part.place] = {.length = part.length, .library = number};
    ahead_.events_->any_awaited = true;
  }

  static std::vector<DeviceExtent> places_of(const std::vector<index::DeviceRun>& runs, ByteRange in_file) {
    std::vector<DeviceExtent> places;
    for (const auto& run : runs)
      if (const auto part = in_file.common_with({run.file_offset, run.length}); run.device != 0 && part.length > 0)
        places.push_back(
            {.place = {run.device, run.device_offset + (part.offset - run.file_offset)}, .length = part.length});
    return places;
  }

  // As far as they are here. The loader is about to write where they say: before the tables of others.
  void read_relocations(Library& library, std::size_t number) {
    auto& left = library.relocations_left;
    while (left.length > 0) {
      const ByteRange piece{left.offset, std::min(left.length, kReadAtOnce)};
      const auto entries = read(library, piece);
      if (!entries) break;
      library.start->add_relocations(*entries);
      left = {piece.end(), left.length - piece.length};
    }
    auto ranges = library.start->take_relocated();
    std::ranges::reverse(ranges);
    if (!library.has_much_data) return;
    library.tables_left += ranges.size();
    for (const auto& range : ranges) bulk_.push_front({Kind::kTables, number, range});
  }

  // False if there is none yet, or no more.
  bool begin_next_init() {
    const auto next = std::ranges::find_if(inits_, [&](std::size_t number) { return found_[number].is_loaded; });
    if (next == inits_.end() || found_[*next].tables_left > 0) return false;
    const auto number = *next;
    inits_.erase(next);
    found_[number].turn = ++turns_;
    auto& library = found_[number];
    for (const auto& range : library.start->maybe_lists())
      if (const auto bytes = read(library, range)) library.start->add_list(range, *bytes);
    const auto code = library.start->init_code();
    library.code_left = code.size();
    if (code.empty()) library.start.reset();
    for (const auto& range : code) bulk_.push_back({Kind::kInitCode, number, range});
    return true;
  }

  void read_init_code(Library& library, std::size_t number) {
    for (const auto& range : library.start->init_code())
      if (const auto code = read(library, range)) library.start->add_code(range, *code);
    for (const auto& range : library.start->used()) bulk_.push_back({Kind::kData, number, range});
    std::vector<DeviceExtent> at_exit;
    for (const auto& range : library.start->used_at_exit())
      for (const auto& place : places_of(library.runs, range)) at_exit.push_back(place);
    ahead_.exits_.add(library.turn, at_exit);
    library.start.reset();
  }

  void fetch(std::size_t number, const std::vector<ByteRange>& in_file, Kind kind = Kind::kStep) {
    std::vector<StreamPiece> pieces;
    for (const auto& range : in_file) {
      const auto part = pieces_of(found_[number].runs, ahead_.devices_, with_surroundings(found_[number], range));
      pieces.insert(pieces.end(), part.begin(), part.end());
    }
    fetch(pieces, {kind, number, kind == Kind::kStep ? 0 : in_file.front().length, false});
  }

  // Tells the thread when they are here, or could not be had.
  void fetch(const std::vector<StreamPiece>& pieces, const Events::Arrival& arrival) {
    struct Waiting {
      std::shared_ptr<Events> events;
      Events::Arrival arrival;
      std::atomic<std::size_t> missing;
      std::atomic<bool> failed = false;
      void arrived(bool well) {
        if (!well) failed = true;
        if (missing.fetch_sub(1) != 1) return;
        arrival.failed = failed;
        events->add(events->arrived, arrival);
      }
    };
    // One more than there are, so that it is not done before all was asked for.
    const auto waiting = std::make_shared<Waiting>(ahead_.events_, arrival, pieces.size() + 1);
    for (const auto& piece : pieces) {
      const auto done = [waiting](const std::exception_ptr& error) { waiting->arrived(!error); };
      if (!is_worth_fetching(piece)) waiting->arrived(true);
      // A start that was learnt: its pack has what the loader reads.
      else if (piece.learnt || !take_from_budget(piece.length))
        waiting->arrived(false);
      else
        piece.stream->ensure({piece.stream_offset, piece.length}, Priority::kReadAhead, done);
    }
    waiting->arrived(true);
  }

  void fetch_now(const std::vector<DeviceExtent>& parts) {
    std::vector<StreamPiece> pieces;
    for (const auto& [place, length] : parts)
      ahead_.devices_.at(place.device - 1)->find_pieces({place.offset, length}, 0, pieces);
    fetch_now(pieces);
  }
  void fetch_now(const std::vector<StreamPiece>& pieces) {
    for (const auto& piece : pieces)
      if (!piece.learnt && is_worth_fetching(piece) && take_from_budget(piece.length))
        piece.stream->ensure({piece.stream_offset, piece.length}, Priority::kReadAhead, [](const auto&) {});
  }

  bool take_from_budget(std::uint64_t bytes) {
    if (bytes > budget_) return false;
    budget_ -= bytes;
    return true;
  }

  static ByteRange with_surroundings(const Library& library, ByteRange in_file) {
    const auto begin = in_file.offset - std::min(in_file.offset, kAround);
    return {begin, std::min(in_file.end() + kAround, library.bytes) - begin};
  }

  // Absent if it is not here (any more).
  std::optional<Bytes> read(const Library& library, ByteRange in_file) const { return read(library.runs, in_file); }
  std::optional<Bytes> read(const std::vector<index::DeviceRun>& runs, ByteRange in_file) const {
    Bytes bytes(in_file.length);
    for (const auto& piece : pieces_of(runs, ahead_.devices_, in_file)) {
      const auto into = std::span(bytes).subspan(piece.into - in_file.offset, piece.length);
      if (!read_if_here(piece, into)) return std::nullopt;
    }
    return bytes;
  }

  const LibraryTable& libraries() const { return ahead_.loads_->libraries; }

  LoaderAhead& ahead_;
  std::deque<Library> found_;
  std::unordered_map<index::Nid, std::size_t> by_file_;
  std::deque<Module> modules_;  // in turn; empty once they were looked at
  std::size_t next_module_ = 0;
  std::uint64_t bytecode_under_way_ = 0, import_budget_ = kMaxImportedBytes;
  std::vector<Events::Arrival> early_bytecode_;
  std::unordered_set<index::Nid> known_modules_;
  ImportTable::Search search_;
  std::vector<std::optional<std::size_t>> roots_;  // whose libraries are not all known
  std::vector<std::size_t> pythons_;               // heads of which only that was begun
  std::size_t python_count_ = 0;
  std::vector<std::size_t> foreseen_;                      // heads of modules that will be imported
  std::unordered_map<std::string, std::size_t> begun_in_;  // by folder, how many heads somebody has read
  std::size_t unfinished_ = 0;
  std::deque<Bulk> bulk_;
  std::uint64_t bulk_under_way_ = 0;
  std::deque<std::size_t> inits_;  // libraries whose init functions were not looked for, as they will run
  std::size_t turns_ = 0;
  std::size_t look_ups_ = kMaxLookUps;
  std::uint64_t budget_ = kMaxBytes;
};

LoaderAhead::LoaderAhead(const index::ErofsReader& tree, std::vector<std::shared_ptr<StreamFile>> devices)
    : tree_(tree), devices_(std::move(devices)), events_(std::make_shared<Events>()) {}

std::jthread LoaderAhead::start(void (LoaderAhead::*run)(const std::stop_token& stop)) {
  return std::jthread([this, run](const std::stop_token& stop) {
    ::setpriority(PRIO_PROCESS, 0, kNice);  // of this thread
    try {
      (this->*run)(stop);
    } catch (const Cancelled&) {
    } catch (const std::exception& error) {
      log::warn("what loaders read is not fetched ahead: {}", error.what());
      begun_ = false;
    }
  });
}

void LoaderAhead::begin(LookThrough when) {
  std::call_once(once_, [&] {
    when_ = when;
    begun_ = true;
    thread_ = start(&LoaderAhead::run);
  });
}

void LoaderAhead::note_read(std::uint32_t device, ByteRange device_range) {
  if (!begun_.load(std::memory_order_relaxed)) return;
  const auto* imports = known_imports_.load(std::memory_order_acquire);
  const auto* loads = known_loads_.load(std::memory_order_acquire);
  if (imports == nullptr) {
    const std::lock_guard guard(events_->mutex);
    imports = known_imports_.load(std::memory_order_acquire);
    loads = known_loads_.load(std::memory_order_acquire);
    if (imports == nullptr && events_->early.size() < kMaxEarlyReads) {
      events_->early.emplace_back(device, device_range);
      events_->changed.notify_one();
    }
  }
  if (loads != nullptr) note_load(*loads, device, device_range);
  if (imports != nullptr) note_import(*imports, device, device_range);
}

void LoaderAhead::note_load(const Loads& loads, std::uint32_t device, ByteRange device_range) {
  const auto& libraries = loads.libraries;
  for (const auto& head : libraries.heads_in(device, device_range)) {
    const auto number = std::size_t(&head - libraries.heads().data());
    if (!loads.told[number].exchange(true)) events_->add(events_->begun, number);
  }
  note_relocating(device, device_range);
  if (auto parts = exits_.note_read(device, device_range); !parts.empty())
    events_->add(events_->exits, std::move(parts));
}

void LoaderAhead::note_import(const Imports& imports, std::uint32_t device, ByteRange device_range) {
  for (const auto& module : imports.modules.modules_in(device, device_range)) {
    const auto number = std::size_t(&module - imports.modules.modules().data());
    if (!imports.told[number].exchange(true)) events_->add(events_->imported, number);
  }
  if (const auto group = imports.packages.note_read(device, device_range)) events_->add(events_->packages, *group);
}

void LoaderAhead::note_relocating(std::uint32_t device, ByteRange device_range) {
  if (!events_->any_awaited.load(std::memory_order_relaxed)) return;
  const std::lock_guard guard(events_->mutex);
  auto& awaited = events_->awaited;
  auto entry = awaited.lower_bound({device, device_range.end()});
  if (entry == awaited.begin()) return;
  --entry;
  const auto& [place, part] = *entry;
  if (place.device != device || !ByteRange{place.offset, part.length}.overlaps(device_range)) return;
  events_->relocating.push_back(part.library);
  awaited.erase(entry);
  events_->any_awaited = !awaited.empty();
  events_->changed.notify_one();
}

void LoaderAhead::find_loads(const std::stop_token& stop) {
  LibraryTable libraries(tree_);
  for_each_name(tree_, [&](index::Nid nid, FileType type, const std::string& folder, std::string_view name) {
    if (stop.stop_requested()) throw Cancelled("looking for libraries: stopped");
    libraries.add(NamedFile(tree_, nid, folder, name), type);
  });
  libraries.finish();
  const auto heads = libraries.heads().size();
  loads_ = std::make_unique<const Loads>(
      Loads{.libraries = std::move(libraries), .told = std::make_unique<std::atomic<bool>[]>(heads)});
  const auto early = [&] {
    const std::lock_guard guard(events_->mutex);
    known_loads_.store(loads_.get(), std::memory_order_release);
    return events_->early;
  }();
  for (const auto& [device, range] : early) note_load(*loads_, device, range);
}

void LoaderAhead::find_imports(const std::stop_token& stop) {
  ModuleTable packages;
  ImportTable modules;
  for_each_name(tree_, [&](index::Nid nid, FileType type, const std::string& folder, std::string_view name) {
    if (stop.stop_requested()) throw Cancelled("looking for modules: stopped");
    if (type != FileType::kRegular) return;
    const NamedFile file(tree_, nid, folder, name);
    packages.add(file);
    modules.add(file);
  });
  packages.finish();
  modules.finish();
  const auto count = modules.modules().size();
  imports_ = std::make_unique<const Imports>(Imports{.packages = std::move(packages),
                                                     .modules = std::move(modules),
                                                     .told = std::make_unique<std::atomic<bool>[]>(count)});
  const auto early = [&] {
    const std::lock_guard guard(events_->mutex);
    known_imports_.store(imports_.get(), std::memory_order_release);
    events_->imports_came = true;
    events_->changed.notify_one();
    return std::exchange(events_->early, {});
  }();
  for (const auto& [device, range] : early) note_import(*imports_, device, range);
}

void LoaderAhead::run(const std::stop_token& stop) {
  if (when_ == LookThrough::kAtFirstRead) {
    std::unique_lock lock(events_->mutex);
    if (!events_->changed.wait(lock, stop, [&] { return !events_->early.empty(); })) return;
  }
  find_loads(stop);
  imports_thread_ = start(&LoaderAhead::find_imports);

  Work work(*this);
  std::unique_lock lock(events_->mutex);
  const auto is_awaited = [&] {
    return !events_->begun.empty() || !events_->imported.empty() || !events_->packages.empty() ||
           !events_->exits.empty() || !events_->relocating.empty() || !events_->arrived.empty() ||
           events_->imports_came;
  };
  while (events_->changed.wait(lock, stop, is_awaited) && !stop.stop_requested()) {
    const auto begun = std::exchange(events_->begun, {});
    const auto imported = std::exchange(events_->imported, {});
    const auto packages = std::exchange(events_->packages, {});
    const auto exits = std::exchange(events_->exits, {});
    const auto relocating = std::exchange(events_->relocating, {});
    const auto arrived = std::exchange(events_->arrived, {});
    const bool imports_came = std::exchange(events_->imports_came, false);
    lock.unlock();
    if (imports_came) work.imports_came();
    for (const auto head : begun) work.begin(head);
    for (const auto module : imported) work.begin_import(module);
    for (const auto group : packages) work.fetch_modules(group);
    for (const auto library : relocating) work.begin_relocating(library);
    for (const auto& parts : exits) work.fetch_at_exit(parts);
    for (const auto& arrival : arrived)
      if (!stop.stop_requested()) work.take(arrival);
    work.go_on();
    lock.lock();
  }
}

}  // namespace varve::fuse
