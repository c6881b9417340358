#include "analyzer/elf/loader.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/base/errors.h"
#include "core/base/text/image_path.h"
#include "core/base/text/strings.h"
#include "core/index/elf/ld_cache.h"

namespace varve::elf {
namespace {

using index::ElfFacts;
using index::FlatEntry;
using index::LdCacheEntry;

constexpr std::uint16_t kX86_64 = 62, kAArch64 = 183, kI386 = 3, kArm = 40, kPpc64 = 21, kS390 = 22, kRiscV = 243;
constexpr std::uint16_t kProgram = 2, kSharedObject = 3;
constexpr std::size_t kMaxSearchDirs = 4096;  // of one file; what a hostile RUNPATH names beyond is not searched

// What differs between machines: the name of Debian's multiarch folder, cache flags, PT_INTERP by convention, what $LIB
// and $PLATFORM can be.
struct Machine {
  std::uint16_t machine;
  bool is_64;
  std::string_view triplet;
  std::uint32_t cache_flags;
  std::string_view interpreter;
  std::string_view lib;  // $LIB where there is no multiarch
  std::vector<std::string_view> platforms;
  std::vector<std::string_view> legacy_hwcaps;
};

const Machine& machine_of(const ElfFacts& facts) {
  static const std::vector<Machine> machines = {
      {kX86_64,
       true,
       "x86_64-linux-gnu",
       index::kLdCacheX86_64,
       "lib64/ld-linux-x86-64.so.2",
       "lib64",
       {"haswell", "xeon_phi", "x86_64"},
       {"avx512_1", "x86_64"}},
      {kAArch64,
       true,
       "aarch64-linux-gnu",
       index::kLdCacheAArch64,
       "lib/ld-linux-aarch64.so.1",
       "lib64",
       {"aarch64"},
       {"atomics"}},
      {kI386, false, "i386-linux-gnu", 0x0003, "lib/ld-linux.so.2", "lib", {"i686", "i586"}, {"sse2"}},
      {kArm, false, "arm-linux-gnueabihf", 0x0903, "lib/ld-linux-armhf.so.3", "lib", {"v7l", "v8l"}, {"neon", "vfp"}},
      {kPpc64, true, "powerpc64le-linux-gnu", 0x0503, "lib64/ld64.so.2", "lib64", {"power8", "power9", "power10"}, {}},
      {kS390, true, "s390x-linux-gnu", 0x0403, "lib/ld64.so.1", "lib64", {"z13", "z14", "z15", "z16"}, {}},
      {kRiscV, true, "riscv64-linux-gnu", 0x1003, "lib/ld-linux-riscv64-lp64d.so.1", "lib64", {}, {}},
  };
  static const Machine unknown{0, true, "", 0x0003, "", "lib", {}, {}};
  const auto found = std::ranges::find_if(
      machines, [&](const auto& one) { return one.machine == facts.machine && one.is_64 == facts.is_64; });
  return found == machines.end() ? unknown : *found;
}

// One element with its tokens replaced: `$ORIGIN`, `$LIB`, `$PLATFORM`, each also as `${…}`. Several where the platform
// is one of several.
std::vector<std::string> expand(std::string_view element, std::string_view origin, std::string_view lib,
                                const std::vector<std::string_view>& platforms) {
  std::vector<std::string> results = {""};
  while (!element.empty()) {
    const auto dollar = element.find('$');
    for (auto& result : results) result += element.substr(0, dollar);
    if (dollar == std::string_view::npos) break;
    element.remove_prefix(dollar);
    const auto take = [&](std::string_view token) {
      const auto curly = "${" + std::string(token) + "}";
      const auto plain = "$" + std::string(token);
      const auto length = element.starts_with(curly) ? curly.size() : element.starts_with(plain) ? plain.size() : 0;
      element.remove_prefix(length);
      return length != 0;
    };
    if (take("ORIGIN")) {
      for (auto& result : results) result += "/" + std::string(origin);
    } else if (take("LIB")) {
      for (auto& result : results) result += lib;
    } else if (take("PLATFORM")) {
      std::vector<std::string> more;
      for (const auto& result : results)
        for (const auto platform : platforms)
          if (more.size() < 64) more.push_back(result + std::string(platform));
      results = std::move(more);
    } else {
      for (auto& result : results) result += '$';
      element.remove_prefix(1);
    }
  }
  return results;
}

void add_once(std::vector<std::string>& list, std::string_view value) {
  if (std::ranges::find(list, value) == list.end()) list.emplace_back(value);
}

}  // namespace

struct Loader::State {
  State(const index::FlatTree& all, const LoaderOptions& how) : tree(all), options(how) {
    index_files();
    read_cache();
  }

  // Where a library can lie: all names under which an ELF file or a link stands, by base name.
  void index_files() {
    for (const auto& [path, entry] : tree.entries) {
      if (entry.type == FileType::kRegular && entry.elf == nullptr) continue;
      if (entry.type != FileType::kRegular && entry.type != FileType::kSymlink) continue;
      by_name[name_of(path)].push_back(path);
      if (entry.type != FileType::kSymlink || path.find(".so") == std::string::npos) continue;
      // A library opened by a link in another folder has that folder as its $ORIGIN.
      const auto real = follow(path, nullptr);
      if (!real || parent_of(*real) == parent_of(path)) continue;
      if (const auto* file = find(*real); file != nullptr && file->elf != nullptr)
        add_once(link_dirs[*real], parent_of(path));
    }
  }

  void read_cache() {
    if (options.cache.empty()) return;
    try {
      for (auto& entry : index::parse_ld_cache(options.cache, "etc/ld.so.cache"))
        cache[entry.name].push_back(std::move(entry));
    } catch (const CorruptData& error) {
      problems.push_back(error.what());
      cache.clear();
    }
    // As ld.so chooses among entries of one name: those for certain machines first, the most demanding one before
    // others.
    for (auto& [name, entries] : cache)
      std::ranges::stable_sort(entries, [](const auto& a, const auto& b) {
        if (a.hwcaps != b.hwcaps) return a.hwcaps > b.hwcaps;
        return a.legacy_hwcap > b.legacy_hwcap;
      });
  }

  const FlatEntry* find(std::string_view path) const {
    const auto found = tree.entries.find(path);
    return found == tree.entries.end() ? nullptr : &found->second;
  }

  std::optional<std::string> follow(std::string_view path, std::vector<std::string>* links) const {
    std::vector<std::string> parts;  // still to go, the next one last
    const auto push = [&](std::string_view more) {
      const auto pieces = split(more, "/");
      for (auto i = pieces.size(); i-- > 0;)
        if (!pieces[i].empty() && pieces[i] != ".") parts.emplace_back(pieces[i]);
    };
    push(path);
    std::string at;
    int followed = 0;
    while (!parts.empty()) {
      const auto part = std::move(parts.back());
      parts.pop_back();
      if (part == "..") {
        at = parent_of(at);
        continue;
      }
      auto next = join_path(at, part);
      const auto* entry = find(next);
      if (entry == nullptr) return std::nullopt;
      if (entry->type == FileType::kSymlink) {
        if (++followed > index::kMaxSymlinksFollowed || parts.size() > index::kMaxLdCacheText) return std::nullopt;
        if (links != nullptr) add_once(*links, next);
        if (entry->symlink_target.starts_with('/')) at.clear();
        push(entry->symlink_target);
        continue;
      }
      if (!parts.empty() && entry->type != FileType::kDirectory) return std::nullopt;
      at = std::move(next);
    }
    return at;
  }

  // The real folder of an absolute path; null if there is none.
  const std::string* real_dir(const std::string& path) const {
    auto [known, added] = dirs.try_emplace(path);
    if (added) {
      auto real = follow(path, nullptr);
      const auto* entry = real ? find(*real) : nullptr;
      if (entry != nullptr && entry->type == FileType::kDirectory) known->second = std::move(real);
    }
    return known->second ? &*known->second : nullptr;
  }

  bool is_dir(const std::string& path) const {
    const auto* entry = find(path);
    return entry != nullptr && entry->type == FileType::kDirectory;
  }

  // The subdirectories for certain machines that are there, best first, and then the folder itself.
  const std::vector<std::string>& with_hwcaps(const std::string& dir, const Machine& machine) const {
    auto [known, added] = hwcaps_dirs.try_emplace({dir, machine.machine});
    if (!added) return known->second;
    auto& list = known->second;
    if (const auto hwcaps = join_path(dir, "glibc-hwcaps"); is_dir(hwcaps)) {
      for (auto i = tree.entries.lower_bound(hwcaps + "/");
           i != tree.entries.end() && i->first.starts_with(hwcaps + "/"); ++i)
        if (i->second.type == FileType::kDirectory && parent_of(i->first) == hwcaps) list.push_back(i->first);
      std::ranges::reverse(list);  // x86-64-v4 before v3
    }
    // Before glibc 2.37: any of these folders inside each other, in this order.
    std::vector<std::string> level = {dir};
    const auto inside = [&](const std::vector<std::string_view>& names) {
      std::vector<std::string> next;
      for (const auto& base : level) {
        for (const auto name : names)
          if (auto sub = join_path(base, name); is_dir(sub)) next.push_back(std::move(sub));
        next.push_back(base);
      }
      level = std::move(next);
    };
    inside({"tls"});
    inside(machine.platforms);
    for (const auto hwcap : machine.legacy_hwcaps) inside({hwcap});
    list.insert(list.end(), level.begin(), level.end());
    return list;
  }

  // Debian's own loader searches the multiarch folders, others lib64; the image's libc says which it is.
  const std::vector<std::string>& default_dirs(const Machine& machine) const {
    auto [known, added] = defaults.try_emplace(&machine);
    if (!added) return known->second;
    auto& list = known->second;
    if (multiarch(machine)) {
      list = {"lib/" + std::string(machine.triplet), "usr/lib/" + std::string(machine.triplet), "lib", "usr/lib"};
    } else if (machine.is_64 && (holds_libc("lib64", machine) || holds_libc("usr/lib64", machine))) {
      list = {"lib64", "usr/lib64"};
    } else {
      list = {"lib", "usr/lib"};
    }
    return list;
  }
  bool holds_libc(const std::string& dir, const Machine& machine) const {
    const auto real = follow(dir + "/libc.so.6", nullptr);
    const auto* entry = real ? find(*real) : nullptr;
    return entry != nullptr && entry->elf != nullptr && &machine_of(*entry->elf) == &machine;
  }
  bool multiarch(const Machine& machine) const {
    if (machine.triplet.empty()) return false;
    auto [known, added] = is_multiarch.try_emplace(&machine, false);
    if (added)
      known->second = holds_libc("lib/" + std::string(machine.triplet), machine) ||
                      holds_libc("usr/lib/" + std::string(machine.triplet), machine);
    return known->second;
  }
  std::string lib_of(const Machine& machine) const {
    return multiarch(machine) ? "lib/" + std::string(machine.triplet) : std::string(machine.lib);
  }

  // The folders of a RUNPATH or RPATH. Elements that are not absolute depend on where the process stands, which no
  // image says: they are left out.
  std::vector<std::string> path_dirs(std::string_view list, const std::vector<std::string>& origins,
                                     const Machine& machine) const {
    std::vector<std::string> found;
    for (const auto element : split(list, ":")) {
      if (found.size() > kMaxSearchDirs) break;
      const bool has_origin = element.find("ORIGIN") != std::string_view::npos;
      for (std::size_t i = 0; i < (has_origin ? origins.size() : 1); ++i)
        for (const auto& dir : expand(element, origins[i], lib_of(machine), machine.platforms))
          if (dir.starts_with('/'))
            if (const auto* real = real_dir(dir)) add_once(found, *real);
    }
    return found;
  }

  // One file: what it is and where $ORIGIN is.
  struct Opened {
    std::string real;
    const ElfFacts* facts = nullptr;
    const Machine* machine = nullptr;
    std::vector<std::string> origins;
  };
  std::optional<Opened> open(std::string_view path) const {
    const auto* entry = find(path);
    Opened opened;
    if (entry != nullptr && entry->type == FileType::kRegular) {
      opened.real = path;
      opened.origins = {std::string(parent_of(path))};
      if (const auto links = link_dirs.find(path); links != link_dirs.end())
        for (const auto& dir : links->second) add_once(opened.origins, dir);
    } else {
      const auto real = follow(path, nullptr);
      entry = real ? find(*real) : nullptr;
      if (entry == nullptr) return std::nullopt;
      const auto folder = follow(parent_of(path), nullptr);
      opened.real = *real;
      opened.origins = {folder ? *folder : std::string(parent_of(*real))};
    }
    if (entry->elf == nullptr) return std::nullopt;
    opened.facts = entry->elf.get();
    opened.machine = &machine_of(*entry->elf);
    return opened;
  }

  std::vector<std::string> rpath_of(const Opened& file) const {
    if (!file.facts->runpath.empty() || file.facts->rpath.empty()) return {};
    return path_dirs(file.facts->rpath, file.origins, *file.machine);
  }

  // As ld.so does when it opens a candidate: files of another class or machine are passed over.
  bool loadable(const FlatEntry& entry, const ElfFacts& by) const {
    return entry.type == FileType::kRegular && entry.elf != nullptr && entry.elf->is_64 == by.is_64 &&
           entry.elf->machine == by.machine && (entry.elf->type == kSharedObject || entry.elf->type == kProgram);
  }

  std::optional<std::string> in_dir(const std::string& dir, const std::vector<std::string_view>& candidates,
                                    const ElfFacts& by) const {
    for (const auto candidate : candidates) {
      if (parent_of(candidate) != dir) continue;
      const auto* entry = find(candidate);
      std::string real(candidate);
      if (entry->type == FileType::kSymlink) {
        const auto target = follow(candidate, nullptr);
        if (!target) return std::nullopt;
        real = *target;
        entry = find(real);
      }
      if (entry == nullptr || !loadable(*entry, by)) return std::nullopt;
      return real;
    }
    return std::nullopt;
  }

  struct Search {
    std::vector<std::string> before, after;  // of LD_LIBRARY_PATH
  };

  Resolution resolve(const Opened& file, const Search& search, std::string_view needed) const {
    Resolution result{.needed = std::string(needed), .matches = {}};
    const auto& by = *file.facts;
    if (needed.find('/') != std::string_view::npos) {
      for (const auto& origin : file.origins)
        for (const auto& path : expand(needed, origin, lib_of(*file.machine), file.machine->platforms))
          if (path.starts_with('/'))
            if (const auto real = follow(path, nullptr))
              if (const auto* entry = find(*real); entry != nullptr && loadable(*entry, by))
                add_once(result.matches, *real);
      return result;
    }
    static const std::vector<std::string_view> none;
    const auto named = by_name.find(needed);
    const auto& candidates = named == by_name.end() ? none : named->second;
    const auto look_in = [&](const std::string& dir) {
      // Inherited folders can be hundreds, candidates are few.
      if (std::ranges::none_of(candidates, [&](auto one) {
            return one.size() > dir.size() && (dir.empty() || one[dir.size()] == '/') && one.starts_with(dir);
          }))
        return;
      for (const auto& one : with_hwcaps(dir, *file.machine))
        if (const auto match = in_dir(one, candidates, by)) add_once(result.matches, *match);
    };
    if (!candidates.empty()) {
      for (const auto& dir : search.before) look_in(dir);
      for (const auto& dir : library_path(*file.machine)) look_in(dir);
      for (const auto& dir : search.after) look_in(dir);
    }
    if (const auto cached = cache.find(needed); cached != cache.end())
      for (const auto& entry : cached->second) {
        if (entry.flags != file.machine->cache_flags && entry.flags != 1) continue;
        const auto real = follow(entry.path, nullptr);
        if (const auto* target = real ? find(*real) : nullptr; target != nullptr && loadable(*target, by))
          add_once(result.matches, *real);
      }
    if (!candidates.empty())
      for (const auto& dir : default_dirs(*file.machine))
        if (const auto* real = real_dir(dir)) look_in(*real);
    // The loader itself is in memory before anything is searched.
    if (result.matches.empty() && !file.machine->interpreter.empty() && needed == name_of(file.machine->interpreter))
      if (const auto real = follow(file.machine->interpreter, nullptr))
        if (const auto* entry = find(*real); entry != nullptr && loadable(*entry, by)) result.matches.push_back(*real);
    if (result.matches.empty() && !candidates.empty())
      if (const auto match = in_dir(std::string(parent_of(file.real)), candidates, by)) {
        result.matches.push_back(*match);
        result.sibling = true;
      }
    return result;
  }

  const std::vector<std::string>& library_path(const Machine& machine) const {
    auto [known, added] = library_dirs.try_emplace(&machine);
    if (added)
      for (const auto element : split(options.library_path, ":;"))
        for (const auto& dir :
             expand(element, "", lib_of(machine), machine.platforms))  // its $ORIGIN is the program's, not known here
          if (dir.starts_with('/') && element.find("ORIGIN") == std::string_view::npos)
            if (const auto* real = real_dir(dir)) add_once(known->second, *real);
    return known->second;
  }

  Search search_of(const Opened& file, std::vector<std::string> inherited) const {
    Search search;
    if (file.facts->runpath.empty()) {
      search.before = rpath_of(file);
      const std::set<std::string_view> own(search.before.begin(), search.before.end());
      std::vector<std::string> others;
      for (auto& dir : inherited)
        if (!own.contains(dir)) others.push_back(std::move(dir));
      search.before.insert(search.before.end(), std::make_move_iterator(others.begin()),
                           std::make_move_iterator(others.end()));
    } else {
      search.after = path_dirs(file.facts->runpath, file.origins, *file.machine);
    }
    return search;
  }

  std::vector<Resolution> resolve_all(const Opened& file, std::vector<std::string> inherited) const {
    const auto search = search_of(file, std::move(inherited));
    std::vector<Resolution> results;
    for (const auto& needed : file.facts->needed) results.push_back(resolve(file, search, needed));
    return results;
  }

  const index::FlatTree& tree;
  LoaderOptions options;
  std::vector<std::string> problems;
  std::unordered_map<std::string_view, std::vector<std::string_view>> by_name;
  std::map<std::string, std::vector<std::string>, std::less<>>
      link_dirs;  // real path -> other folders from which links lead to it
  std::map<std::string, std::vector<LdCacheEntry>, std::less<>> cache;
  mutable std::unordered_map<std::string, std::optional<std::string>> dirs;
  mutable std::map<std::pair<std::string, std::uint16_t>, std::vector<std::string>> hwcaps_dirs;
  mutable std::map<const Machine*, std::vector<std::string>> defaults, library_dirs;
  mutable std::map<const Machine*, bool> is_multiarch;
};

Loader::Loader(const index::FlatTree& tree, const LoaderOptions& options)
    : state_(std::make_unique<State>(tree, options)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;

const index::FlatTree& Loader::tree() const { return state_->tree; }
const std::vector<std::string>& Loader::problems() const { return state_->problems; }

std::string Loader::real_path(std::string_view path, std::vector<std::string>* links) const {
  return state_->follow(path, links).value_or("");
}

std::string Loader::interpreter(std::string_view path) const {
  const auto file = state_->open(path);
  return file && !file->facts->interpreter.empty() ? real_path(file->facts->interpreter) : std::string();
}

std::vector<Resolution> Loader::resolve(std::string_view path, const std::vector<std::string>& loaded_by) const {
  std::vector<std::string> inherited;
  for (const auto& loader : loaded_by)
    for (auto& dir : rpath_dirs(loader)) add_once(inherited, dir);
  return resolve_inheriting(path, inherited);
}

std::vector<Resolution> Loader::resolve_inheriting(std::string_view path,
                                                   const std::vector<std::string>& inherited_dirs) const {
  const auto file = state_->open(path);
  if (!file || file->facts->needed.empty()) return {};
  return state_->resolve_all(*file, inherited_dirs);
}

std::vector<std::string> Loader::rpath_dirs(std::string_view path) const {
  const auto file = state_->open(path);
  return file ? state_->rpath_of(*file) : std::vector<std::string>();
}

Resolution Loader::resolve_name(std::string_view path, std::string_view name) const {
  const auto file = state_->open(path);
  if (!file) return {.needed = std::string(name), .matches = {}};
  return state_->resolve(*file, state_->search_of(*file, {}), name);
}

NeedsClosure::NeedsClosure(const Loader& loader) : loader_(loader) {}

std::size_t NeedsClosure::number_of_dir(const std::string& dir) {
  const auto [known, added] = dir_numbers_.try_emplace(dir, dirs_.size());
  if (added) dirs_.push_back(dir);
  return known->second;
}

std::size_t NeedsClosure::number_of(std::string_view path) {
  if (const auto known = numbers_.find(path); known != numbers_.end()) return known->second;
  File file{.path = std::string(path), .rpath = {}, .inherited = {}, .loads = {}};
  for (const auto& dir : loader_.rpath_dirs(path)) {
    const auto number = number_of_dir(dir);
    if (file.rpath.size() <= number / 64) file.rpath.resize(number / 64 + 1);
    file.rpath[number / 64] |= std::uint64_t(1) << (number % 64);
  }
  if (const auto entry = loader_.tree().entries.find(path);
      entry != loader_.tree().entries.end() && entry->second.elf != nullptr)
    file.searches_inherited = entry->second.elf->runpath.empty() && !entry->second.elf->needed.empty();
  files_.push_back(std::move(file));
  numbers_.emplace(path, files_.size() - 1);
  return files_.size() - 1;
}

void NeedsClosure::link(std::size_t loader, std::size_t loaded) {
  if (loader != loaded && files_[loader].loads.insert(loaded).second) to_hand_on_.push_back(loader);
}

// Each file gives what it has to what it loads, until nobody learns anything new.
void NeedsClosure::hand_on() {
  const auto learn = [](File& file, const Dirs& from) {
    if (file.inherited.size() < from.size()) file.inherited.resize(from.size());
    bool more = false;
    for (std::size_t i = 0; i < from.size(); ++i) {
      more = more || (from[i] & ~file.inherited[i]) != 0;
      file.inherited[i] |= from[i];
    }
    return more;
  };
  std::vector<bool> waits(files_.size(), false);
  for (const auto number : to_hand_on_) waits[number] = true;
  for (std::size_t at = 0; at < to_hand_on_.size(); ++at) {
    const auto number = to_hand_on_[at];
    waits[number] = false;
    for (const auto loaded : files_[number].loads) {
      auto& file = files_[loaded];
      const bool more = learn(file, files_[number].rpath);
      if (!learn(file, files_[number].inherited) && !more) continue;
      file.changed = file.changed || file.searches_inherited;
      if (!waits[loaded]) {
        waits[loaded] = true;
        to_hand_on_.push_back(loaded);
      }
    }
  }
  to_hand_on_.clear();
}

std::vector<std::string> NeedsClosure::dirs_of(const Dirs& dirs) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < dirs_.size() && i / 64 < dirs.size(); ++i)
    if ((dirs[i / 64] >> (i % 64) & 1) != 0) names.push_back(dirs_[i]);
  return names;
}

void NeedsClosure::add(std::string_view path, std::string_view opener) {
  const auto number = number_of(path);
  if (!opener.empty()) link(number_of(opener), number);
}

void NeedsClosure::run(const std::function<void(const std::string&, const std::string&)>& found) {
  for (;;) {
    hand_on();
    std::vector<std::size_t> changed;
    for (std::size_t i = 0; i < files_.size(); ++i)
      if (files_[i].changed) changed.push_back(i);
    if (changed.empty()) return;
    std::ranges::sort(changed, {}, [&](auto number) -> const std::string& { return files_[number].path; });
    std::vector<std::pair<std::string, std::string>> news;
    for (const auto number : changed) {
      const auto path = files_[number].path;
      auto needs = loader_.resolve_inheriting(path, dirs_of(files_[number].inherited));
      const auto reach = [&](const std::string& file) {
        if (!numbers_.contains(file)) news.emplace_back(file, path);
        link(number, number_of(file));
      };
      for (const auto& need : needs)
        for (const auto& match : need.matches) reach(match);
      if (!files_[number].resolved)
        if (const auto interpreter = loader_.interpreter(path); !interpreter.empty()) reach(interpreter);
      files_[number].changed = false;
      files_[number].resolved = true;
      if (!needs.empty()) needs_[path] = std::move(needs);
    }
    for (const auto& [file, by] : news)
      if (found) found(file, by);
  }
}

}  // namespace varve::elf
