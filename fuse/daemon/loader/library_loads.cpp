#include "fuse/daemon/loader/library_loads.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/base/log.h"

namespace varve::fuse {
namespace {

// The kernel asks for as much around what a loader touches, of the same file.
constexpr std::uint64_t kAround = 64 << 10;
// Stream side, of tables, data and code: what the next load begins with goes behind no more than this.
constexpr std::uint64_t kBulkUnderWay = 32 << 20;
constexpr std::uint64_t kFetchedAtOnce = 1 << 20;  // of tables, so that what has come can be looked at
// A smaller table may be read with what lies in front of it.
constexpr std::uint64_t kManyRelocations = 512 << 10;
constexpr std::uint64_t kReadAtOnce = index::LibraryStart::kEntryBytes << 14;
// Stream side. A folder with more of extension modules has some that nobody loads together.
constexpr std::uint64_t kMaxFolderBytes = 64 << 20;
constexpr std::size_t kMaxPythons = 16;              // over the life of one
constexpr std::uint64_t kMaxPythonBytes = 64 << 20;  // of its program or its library

ByteRange with_surroundings(ByteRange in_file, std::uint64_t file_bytes) {
  const auto begin = in_file.offset - std::min(in_file.offset, kAround);
  return {begin, std::min(in_file.end() + kAround, file_bytes) - begin};
}

std::vector<DeviceExtent> places_of(const std::vector<index::DeviceRun>& runs, ByteRange in_file) {
  std::vector<DeviceExtent> places;
  for (const auto& run : runs)
    if (const auto part = in_file.common_with({run.file_offset, run.length}); run.device != 0 && part.length > 0)
      places.push_back(
          {.place = {run.device, run.device_offset + (part.offset - run.file_offset)}, .length = part.length});
  return places;
}

}  // namespace

void LibraryLoads::begin(std::size_t head) {
  const auto& folder = begin_alone(head);
  if (known_.heads()[head].is_module && ++begun_in_[folder] == 2) begin_others_in(folder);
}

void LibraryLoads::foresee(index::Nid file) {
  const auto runs = tree_.runs(file);
  if (runs.empty() || runs.front().file_offset != 0) return;
  for (const auto& head : known_.heads_in(runs.front().device, {runs.front().device_offset, 1})) {
    const auto number = std::size_t(&head - known_.heads().data());
    if (known_.note_begun(number)) foreseen_.push_back(number);
  }
}

void LibraryLoads::take(const LoaderEvents::Arrival& arrival) {
  auto& library = found_[arrival.file];
  if (arrival.kind != Kind::kStep) {
    bulk_under_way_ -= arrival.bytes;
    if (arrival.kind == Kind::kTables) {
      --library.tables_left;
      read_relocations(library, arrival.file);
    }
    if (arrival.kind == Kind::kInitCode && --library.code_left == 0) read_init_code(library, arrival.file);
    return;
  }
  if (arrival.failed || !next_step(arrival.file)) library.step = Step::kDone;
  if (library.step == Step::kDone) --unfinished_;
}

void LibraryLoads::note_relocating(std::size_t library) {
  found_[library].is_loaded = true;
  note_loaded(library);
}

void LibraryLoads::go_on() {
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
}

const std::string& LibraryLoads::begin_alone(std::size_t head) {
  const auto& [place, file, is_module, python_minor] = known_.heads()[head];
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
void LibraryLoads::begin_others_in(const std::string& folder) {
  const auto others = known_.modules_in(folder);
  std::uint64_t bytes = 0;
  for (const auto head : others) bytes += tree_.inode(known_.heads()[head].file.file).size;
  if (bytes > kMaxFolderBytes) return;
  for (const auto head : others)
    if (known_.note_begun(head)) begin_alone(head);
}

std::optional<std::size_t> LibraryLoads::add(const LoadedFile& file) {
  if (const auto known = by_file_.find(file.file); known != by_file_.end()) return known->second;
  if (found_.size() == kMaxLibraries) return std::nullopt;
  const auto number = found_.size();
  by_file_[file.file] = number;
  auto& library = found_.emplace_back();
  library.found = file;
  library.bytes = tree_.inode(file.file).size;
  library.runs = tree_.runs(file.file);
  ++unfinished_;
  fetch(number, {{0, std::min<std::uint64_t>(library.bytes, LibraryLayout::kHeadBytes)}});
  return number;
}

// False if it tells nothing more.
bool LibraryLoads::next_step(std::size_t number) {
  auto& library = found_[number];
  if (library.step == Step::kHead) return read_head(library, number);
  if (library.step == Step::kDynamic) return read_dynamic(library, number);
  if (library.step == Step::kNames) read_names(library);
  return false;
}

bool LibraryLoads::read_head(Library& library, std::size_t number) {
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

bool LibraryLoads::read_dynamic(Library& library, std::size_t number) {
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

void LibraryLoads::read_names(Library& library) {
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

void LibraryLoads::need(Library& library, std::string_view name, std::string_view search_path) {
  const auto found = known_.find(name, library.found, search_path, look_ups_);
  const auto other = found ? add(*found) : std::nullopt;
  if (!other) return;
  library.needed.push_back(*other);
  if (library.is_python && name.starts_with("libpython3.")) found_[*other].is_python = true;
}

// As ld.so maps them, each before what it needs; relocated in the reverse of that.
void LibraryLoads::plan_tables() {
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
  for (const auto head : std::exchange(pythons_, {})) planned_pythons_.push_back(head);
}

// Its start goes all over it.
void LibraryLoads::add_code(std::size_t number) {
  if (!found_[number].layout) return;
  auto bytes = kMaxPythonBytes;
  for (const auto& load : found_[number].layout->loads()) {
    const ByteRange wanted{load.in_file.offset, std::min(load.in_file.length, bytes)};
    want_in_parts(Kind::kData, number, wanted);
    bytes -= wanted.length;
  }
}

// How many they are.
std::size_t LibraryLoads::want_in_parts(Kind kind, std::size_t number, ByteRange in_file) {
  std::size_t parts = 0;
  for (; in_file.length > 0; ++parts) {
    const auto length = std::min(in_file.length, kFetchedAtOnce);
    bulk_.push_back({kind, number, {in_file.offset, length}});
    in_file = {in_file.offset + length, in_file.length - length};
  }
  return parts;
}

// What a loaded one needs is loaded; programs are.
void LibraryLoads::note_loaded(std::size_t number) {
  for (std::vector<std::size_t> left{number}; !left.empty();) {
    auto& library = found_[left.back()];
    left.pop_back();
    if (library.layout && !library.layout->interpreter().empty()) library.is_loaded = true;
    if (!library.is_loaded) continue;
    for (const auto needed : library.needed)
      if (!std::exchange(found_[needed].is_loaded, true)) left.push_back(needed);
  }
}

void LibraryLoads::await_relocating(Library& library, std::size_t number) {
  const auto table = library.start->relocations();
  if (table.length < kManyRelocations) library.is_loaded = true;
  if (library.is_loaded) return;
  const ByteRange half{table.offset + table.length / 2, table.length - table.length / 2};
  const std::lock_guard guard(events_.mutex);
  for (const auto& part : places_of(library.runs, half))
    events_.awaited[part.place] = {.length = part.length, .library = number};
  events_.any_awaited = true;
}

// As far as they are here. The loader is about to write where they say: before the tables of others.
void LibraryLoads::read_relocations(Library& library, std::size_t number) {
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
bool LibraryLoads::begin_next_init() {
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

void LibraryLoads::read_init_code(Library& library, std::size_t number) {
  for (const auto& range : library.start->init_code())
    if (const auto code = read(library, range)) library.start->add_code(range, *code);
  for (const auto& range : library.start->used()) bulk_.push_back({Kind::kData, number, range});
  std::vector<DeviceExtent> at_exit;
  for (const auto& range : library.start->used_at_exit())
    for (const auto& place : places_of(library.runs, range)) at_exit.push_back(place);
  exits_.add(library.turn, at_exit);
  library.start.reset();
}

void LibraryLoads::fetch(std::size_t number, const std::vector<ByteRange>& in_file, Kind kind) {
  std::vector<StreamPiece> pieces;
  for (const auto& range : in_file) {
    const auto part = fetcher_.pieces(found_[number].runs, with_surroundings(range, found_[number].bytes));
    pieces.insert(pieces.end(), part.begin(), part.end());
  }
  fetcher_.fetch(pieces, {kind, number, kind == Kind::kStep ? 0 : in_file.front().length, false});
}

}  // namespace varve::fuse
