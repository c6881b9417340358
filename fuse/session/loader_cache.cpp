#include "fuse/session/loader_cache.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/file_id.h"
#include "core/base/process/child_process.h"
#include "core/base/text/strings.h"
#include "core/index/elf/ld_cache.h"
#include "core/index/elf/library_layout.h"

namespace varve::fuse {
namespace {

using index::LdCacheEntry;
using index::LibraryLayout;

constexpr std::uint64_t kMaxLdSoConf = 1 << 20;
constexpr std::string_view kLdSoConf = "/etc/ld.so.conf";
constexpr std::string_view kOurLdSoConf =
    "/etc/ld.so.conf.d/00-varve-devices.conf";  // before the image's own: the driver's libraries win
constexpr std::string_view kLdSoConfDir = "/etc/ld.so.conf.d";
constexpr std::uint64_t kLdconfigMemory = std::uint64_t(1) << 30;  // a list of the image may be one line of any length
constexpr std::chrono::seconds kLdconfigLimit{600};  // it reads the head of each library, over a lazy mount
constexpr std::string_view kIncludeAll = "include /etc/ld.so.conf.d/*.conf\n";
constexpr std::string_view kLdSoCache = "/etc/ld.so.cache";
// Where a loader looks whatever its configuration says, and where people put libraries without asking ldconfig.
constexpr std::string_view kUsualFolders[] = {"/lib", "/usr/lib", "/usr/local/lib"};
// Files that the cache does not name are read, to see whether it should: more of them are faster read by ldconfig.
constexpr std::size_t kMaxLookedAt = 32;

// The folder of a path in the session's tree, made where it is missing.
UniqueFd folder_of(const Rootfs& rootfs, const std::filesystem::path& path) {
  auto folder = rootfs.open_plain(rootfs.ensure(path.parent_path().string(), {.folder = true, .mode = 0755}),
                                  O_RDONLY | O_DIRECTORY);
  if (!folder) fail<Error>("the folder of {} in the session cannot be opened", path.string());
  return std::move(*folder);
}

void remove_in(const UniqueFd& folder, const std::filesystem::path& path) {
  if (::unlinkat(folder.get(), path.filename().c_str(), 0) != 0 && errno != ENOENT)
    fail_errno("replace {} of the image", path.string());
}

// Never opens what the image has there, which may be a link, a FIFO or a device.
void write_in(const Rootfs& rootfs, const std::filesystem::path& path, std::string_view text) {
  const auto folder = folder_of(rootfs, path);
  remove_in(folder, path);
  const UniqueFd file(
      ::openat(folder.get(), path.filename().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) fail_errno("make {} in the session", path.string());
  write_all(file.get(), as_bytes(text), path.string());
}

// ldconfig opens its own files as they are: what is no plain file goes, and so does what it is about to write.
void clear_loader_files(const Rootfs& rootfs) {
  for (const std::filesystem::path path : {"/etc/ld.so.cache", "/var/cache/ldconfig/aux-cache"}) {
    if (!rootfs.open_path(path.parent_path().string(), O_PATH)) continue;
    const auto folder = folder_of(rootfs, path);
    struct stat status {};
    if (::fstatat(folder.get(), path.filename().c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(status.st_mode))
      remove_in(folder, path);
    remove_in(folder, path.string() + "~");
  }
}

// It would read them, and wait for ever at a FIFO. What else a list of the image includes is left to the limit.
void check_loader_lists(const Rootfs& rootfs) {
  const auto lists = rootfs.open_path(kLdSoConfDir, O_RDONLY | O_DIRECTORY);
  if (!lists) return;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd/" + std::to_string(lists->get()))) {
    const auto name = fmt::format("{}/{}", kLdSoConfDir, entry.path().filename().string());
    const auto file = rootfs.open_path(name, O_PATH);
    struct stat status {};
    if (file && ::fstat(file->get(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
      fail<CorruptData>("{} of the image is no plain file", name);
  }
}

// In front of the image's own lists, for whoever runs ldconfig in the session.
void write_loader_lists(const std::vector<std::string>& folders, const Rootfs& rootfs) {
  std::string list;
  for (const auto& folder : folders)
    if (folder.find('\n') == std::string::npos) list += folder + "\n";
  write_in(rootfs, kOurLdSoConf, list);
  const auto conf = rootfs.read_file(kLdSoConf, kMaxLdSoConf);
  const std::string text(conf ? as_text(*conf) : std::string_view());
  if (text.find("ld.so.conf.d/*.conf") == std::string::npos)
    write_in(rootfs, kLdSoConf, std::string(kIncludeAll) + text);
}

// The machine's ldconfig works on any tree, and is a program that nobody in the image has touched.
void run_ldconfig(const Rootfs& rootfs, const std::filesystem::path& merged) {
  clear_loader_files(rootfs);
  check_loader_lists(rootfs);
  const auto* program = "/sbin/ldconfig";
  if (::access(program, X_OK) != 0) fail<Error>("this machine has no {}", program);
  const auto done = run_child({.words = {program, "-r", merged.string()},
                               .input = {},
                               .limit = kLdconfigLimit,
                               .environment = std::vector<std::string>{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
                               .max_memory_bytes = kLdconfigMemory},
                              CancelFlag());
  if (done.timed_out) fail<Error>("{} did not end within {} s", program, kLdconfigLimit.count());
  if (done.exit_status != 0) fail<Error>("{} ended with status {}: {:.300}", program, done.exit_status, done.err);
}

struct Status {
  FileId id;
  mode_t mode = 0;
  std::int64_t changed = 0;  // seconds since 1970
};

// Through links; absent: there is nothing.
std::optional<Status> look_at(const Rootfs& rootfs, const std::string& path) {
  const auto file = rootfs.open_path(path, O_PATH);
  struct stat status {};
  if (!file || ::fstat(file->get(), &status) != 0) return std::nullopt;
  return Status{id_of(status), status.st_mode, status.st_mtim.tv_sec};
}

// As ldconfig tells libraries by their names (elf/ldconfig.c, search_dir).
bool is_named_as_library(std::string_view name) {
  return (name.starts_with("lib") || name.starts_with("ld-")) && name.find(".so") != name.npos;
}

// Of a cache's entry for a library of 64 bits; absent: another machine's.
std::optional<std::uint32_t> flags_of(std::uint16_t machine) {
  if (machine == EM_X86_64) return index::kLdCacheX86_64;
  if (machine == EM_AARCH64) return index::kLdCacheAArch64;
  return std::nullopt;
}

struct LibraryName {
  std::string soname;  // "" = it says none
  std::uint16_t machine = 0;
};

// Absent: no library that could be loaded, as the scripts that linkers read under such names. Throws Unsupported of 32
// bits.
std::optional<LibraryName> name_of(const Rootfs& rootfs, const std::string& path) {
  const auto file = rootfs.open_regular(path);
  if (!file) return std::nullopt;
  const auto size = file_size(file->get(), path);
  const auto read = [&](ByteRange range) {
    Bytes bytes(range.length);
    pread_exactly(file->get(), range.offset, bytes, path);
    return bytes;
  };
  const auto head = read({0, std::min<std::uint64_t>(size, LibraryLayout::kHeadBytes)});
  if (!as_text(head).starts_with(ELFMAG)) return std::nullopt;
  const auto layout = LibraryLayout::of(head, size);
  if (!layout) fail<Unsupported>("{} is no library of 64 bits", path);
  LibraryName name{.soname = {}, .machine = layout->machine()};
  if (const auto at = layout->soname(read(layout->dynamic_section())))
    name.soname = LibraryLayout::text_of(read(*at)).value_or("");
  if (name.soname.find('/') != name.soname.npos) fail<Unsupported>("{} calls itself {:.300}", path, name.soname);
  return name;
}

// Makes the new cache of the old one; what is odd in it is Unsupported, and for ldconfig to look at.
class RenewedCache {
 public:
  RenewedCache(const Rootfs& rootfs, const std::vector<CdiMount>& files) : rootfs_(rootfs) {
    for (const auto& one : files)
      if (const auto seen = look_at(rootfs, one.container_path)) of_driver_.insert(seen->id);
  }

  // Changes nothing.
  void read_old() {
    const auto cache = look_at(rootfs_, std::string(kLdSoCache));
    const auto bytes = cache ? rootfs_.read_file(kLdSoCache, index::kMaxLdCacheBytes) : std::nullopt;
    if (!bytes) fail<Unsupported>("the image has no {}", kLdSoCache);
    read_newer_lists(cache->changed);
    for (auto& entry : index::parse_ld_cache(as_text(*bytes), kLdSoCache)) {
      if (!entry.hwcaps.empty() || entry.legacy_hwcap) fail<Unsupported>("{} is for certain processors", entry.path);
      const auto seen = look_at(rootfs_, entry.path);
      const auto slash = entry.path.rfind('/');
      if (!seen || slash == entry.path.npos) continue;  // gone since
      const auto folder = find_folder(entry.path.substr(0, slash));
      if (!folder || of_driver_.contains(seen->id)) continue;  // or of an earlier start of this session
      known_files_.insert(seen->id);
      known_names_.emplace(*folder, entry.name);
      entries_.push_back(std::move(entry));
    }
  }

  // The links are made.
  Bytes with_driver(const std::vector<std::string>& folders) {
    for (const auto& folder : folders) find_folder(folder);
    for (const auto folder : kUsualFolders) find_folder(std::string(folder));
    std::set<FileId> done;
    for (const auto& [folder, id] : folders_)
      if (id && done.insert(*id).second) look_through(folder, *id);
    std::vector<LdCacheEntry> first;
    for (const auto& [place, library] : libraries_) {
      const auto& [folder, name] = place;
      if (name != library.file) link(folder, name, library.file);
      first.push_back({.flags = library.flags, .name = name, .path = folder + "/" + name, .hwcaps = {}});
    }
    for (const auto& [folder, name] : links_)
      if (!libraries_.empty() && !libraries_.contains({folder, name}))
        first.push_back({.flags = first.front().flags, .name = name, .path = folder + "/" + name, .hwcaps = {}});
    return index::write_ld_cache(std::move(entries_), first);
  }

 private:
  // Remembers a folder; absent: there is none.
  std::optional<FileId> find_folder(const std::string& folder) {
    const auto [found, is_new] = folders_.try_emplace(folder);
    if (!is_new) return found->second;
    if (const auto seen = look_at(rootfs_, folder); seen && S_ISDIR(seen->mode)) found->second = seen->id;
    return found->second;
  }

  // Of what was configured after the cache was made ldconfig has not looked at the folders.
  void read_newer_lists(std::int64_t cache_changed) {
    const auto is_newer = [&](const std::string& path) {
      const auto seen = look_at(rootfs_, path);
      return seen && seen->changed > cache_changed;
    };
    if (is_newer(std::string(kLdSoConf))) read_list(std::string(kLdSoConf));
    const auto lists = rootfs_.list(kLdSoConfDir);
    if (!lists) return;
    const bool all = is_newer(std::string(kLdSoConfDir));  // a file came or went, whatever its own time says
    for (const auto& name : lists->names)
      if (const auto path = fmt::format("{}/{}", kLdSoConfDir, name); all || is_newer(path)) read_list(path);
  }

  void read_list(const std::string& path) {
    const auto bytes = rootfs_.read_file(path, kMaxLdSoConf);
    if (!bytes) fail<Unsupported>("{} is no plain file", path);
    for (auto line : split(as_text(*bytes), "\n")) {
      line = trimmed(line.substr(0, line.find('#')));
      if (line.starts_with('/'))
        find_folder(std::string(line));
      else if (!line.empty() && !(line.starts_with("include") && line.ends_with("ld.so.conf.d/*.conf")))
        fail<Unsupported>("{} says '{:.300}'", path, line);
    }
  }

  void look_through(const std::string& folder, const FileId& id) {
    const auto listed = rootfs_.list(folder);
    if (!listed) return;
    for (const auto& name : listed->names) {
      const auto path = folder + "/" + name;
      const auto seen = is_named_as_library(name) ? look_at(rootfs_, path) : std::nullopt;
      if (!seen || !S_ISREG(seen->mode) || known_files_.contains(seen->id)) continue;
      if (of_driver_.contains(seen->id)) {
        add_of_driver(folder, name);
      } else {
        if (++looked_at_ > kMaxLookedAt) fail<Unsupported>("{} and others are not in {}", path, kLdSoCache);
        const auto library = name_of(rootfs_, path);
        // An older or newer one of a name whose link leads to another.
        if (library && !known_names_.contains({id, library->soname.empty() ? name : library->soname}))
          fail<Unsupported>("{} is not in {}", path, kLdSoCache);
      }
    }
  }

  void add_of_driver(const std::string& folder, const std::string& name) {
    const auto path = folder + "/" + name;
    const auto there = rootfs_.open_path(path, O_PATH | O_NOFOLLOW);
    struct stat status {};
    if (!there || ::fstat(there->get(), &status) != 0) fail<Unsupported>("{} cannot be looked at", path);
    if (S_ISLNK(status.st_mode)) {
      links_.insert({folder, name});
      return;
    }
    const auto library = name_of(rootfs_, path);
    if (!library) return;
    const auto flags = flags_of(library->machine);
    if (!flags) fail<Unsupported>("{} is of another machine", path);
    auto& best = libraries_[{folder, library->soname.empty() ? name : library->soname}];
    // Of two with one name the later version, which sorts behind: drivers have all files of one version.
    if (best.file < name) best = {.file = name, .flags = *flags};
  }

  // What others ask for leads to the file. A link of the image or of an earlier start that leads nowhere is replaced.
  void link(const std::string& folder, const std::string& name, const std::string& file) const {
    const auto path = folder + "/" + name;
    if (const auto seen = look_at(rootfs_, path)) {
      if (of_driver_.contains(seen->id)) return;
      fail<Unsupported>("{} is the image's own", path);
    }
    const auto place = folder_of(rootfs_, path);
    remove_in(place, path);
    if (::symlinkat(file.c_str(), place.get(), name.c_str()) != 0) fail_errno("make the link {}", path);
  }

  struct OfDriver {
    std::string file;  // its name, in the folder
    std::uint32_t flags = 0;
  };
  using Place = std::pair<std::string, std::string>;  // folder, name

  const Rootfs& rootfs_;
  std::set<FileId> of_driver_, known_files_;
  std::set<std::pair<FileId, std::string>> known_names_;  // by folder
  std::map<std::string, std::optional<FileId>> folders_;
  std::vector<LdCacheEntry> entries_;
  std::map<Place, OfDriver> libraries_;
  std::set<Place> links_;  // to the driver's files
  std::size_t looked_at_ = 0;
};

}  // namespace

void tell_loader_of_driver(const std::vector<std::string>& folders, const std::vector<CdiMount>& files,
                           const Rootfs& rootfs, const std::filesystem::path& merged,
                           const std::function<void(const std::string&)>& say) {
  std::optional<Bytes> cache;
  try {
    RenewedCache renewed(rootfs, files);
    renewed.read_old();
    cache = renewed.with_driver(folders);
  } catch (const std::exception& reason) {
    say(fmt::format("ldconfig reads all libraries of the image for the driver's: {}", reason.what()));
  }
  write_loader_lists(folders, rootfs);
  if (cache)
    write_in(rootfs, kLdSoCache, as_text(*cache));
  else
    run_ldconfig(rootfs, merged);
}

}  // namespace varve::fuse
