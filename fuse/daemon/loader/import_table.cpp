#include "fuse/daemon/loader/import_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/base/text/image_path.h"
#include "core/base/text/strings.h"

namespace varve::fuse {
namespace {

constexpr std::string_view kCache = "/__pycache__", kBytecode = ".pyc";
constexpr std::size_t kMaxPart = 255;  // of a name; no file has a longer one
constexpr std::size_t kMaxName = 1024;
constexpr std::size_t kMapBytes = 64;  // what an entry costs beside its text
// Of kFirstWithFrozen and later.
constexpr auto kFrozen = std::to_array<std::string_view>(
    {"abc", "codecs", "io", "_collections_abc", "_sitebuiltins", "genericpath", "ntpath", "posixpath", "os", "os.path",
     "site", "stat", "importlib.util", "importlib.machinery", "runpy", "zipimport"});

std::string cache_of(const std::string& folder) { return folder + std::string(kCache); }

// ".cpython-311.pyc" of "x.cpython-311.pyc", ".cpython-311.opt-1.pyc" of what is optimized; "" of others.
std::string_view suffix_of(std::string_view name) {
  const auto dot = name.find('.');
  if (dot == std::string_view::npos || !name.ends_with(kBytecode)) return {};
  const auto suffix = name.substr(dot);
  return suffix.starts_with(".cpython-3") && suffix.size() > kBytecode.size() ? suffix : std::string_view();
}

// "cpython-311"
std::string_view tag_of(std::string_view name) {
  const auto suffix = suffix_of(name);
  return suffix.empty() ? suffix : suffix.substr(1, suffix.find('.', 1) - 1);
}

// 11
unsigned minor_of(std::string_view tag) {
  constexpr std::string_view kPrefix = "cpython-3";
  unsigned minor = 0;
  if (tag.starts_with(kPrefix)) std::from_chars(tag.data() + kPrefix.size(), tag.data() + tag.size(), minor);
  return minor;
}

// Of a folder "python3.11" that holds a standard library: "cpython-311".
std::string tag_of_version(std::string_view folder) {
  constexpr std::string_view kPrefix = "python3.";
  return folder.starts_with(kPrefix) ? "cpython-3" + std::string(folder.substr(kPrefix.size())) : std::string();
}

std::size_t in_common(std::string_view one, std::string_view other) {
  return std::size_t(std::ranges::mismatch(one, other).in1 - one.begin());
}

}  // namespace

void ImportTable::add(const NamedFile& file) {
  const auto& folder = file.folder;
  const auto name = file.name;
  const auto part = name_of(folder);
  const bool is_root =
      holds_distributions(part) || part == "lib-dynload" || (name == "os.py" && part.starts_with("python3."));
  if (is_root && roots_.size() < kMaxRoots) roots_.insert(folder);
  if (!folder.ends_with(kCache) || tag_of(name).empty() || modules_.size() == kMaxModules) return;
  const bool is_fresh = folders_.empty() || folders_.back() != folder;
  const auto text_bytes = name.size() + 1 + (is_fresh ? folder.size() + kMapBytes : 0);
  if (text_bytes_ + text_bytes > kMaxTextBytes) return;
  const auto place = file.first_place();
  if (!place) return;
  text_bytes_ += text_bytes;
  if (is_fresh) folders_.push_back(folder);
  modules_.push_back({.place = *place,
                      .file = file.nid,
                      .folder = std::uint32_t(folders_.size() - 1),
                      .name = std::uint32_t(names_.size())});
  names_.append(name).push_back('\0');
}

void ImportTable::finish() {
  // A folder of packages may hold nothing but folders.
  for (const auto& folder : folders_)
    for (const std::string_view holder : {"/site-packages/", "/dist-packages/"})
      if (const auto at = ("/" + folder).find(holder); at != std::string::npos && roots_.size() < kMaxRoots)
        roots_.insert(folder.substr(0, at + holder.size() - 2));
  std::ranges::sort(modules_, {}, &Module::place);
  begun_ = std::make_unique<std::atomic<bool>[]>(modules_.size());
  modules_.shrink_to_fit();
  folders_.shrink_to_fit();
  names_.shrink_to_fit();
}

std::span<const ImportTable::Module> ImportTable::modules_in(std::uint32_t device, ByteRange device_range) const {
  return begun_in(modules_, device, device_range);
}

bool ImportTable::Search::has_room(std::size_t bytes) {
  if (text_bytes_ + bytes > kMaxTextBytes) return false;
  text_bytes_ += bytes;
  return true;
}

const ImportTable::Search::Folder* ImportTable::Search::folder(const std::string& path) {
  if (const auto known = folders_.find(path); known != folders_.end()) return known->second ? &*known->second : nullptr;
  if (!has_room(path.size() + kMapBytes)) return nullptr;
  auto& names = folders_[path];
  const auto found = tree_.resolve(path, true);
  if (!found || tree_.inode(*found).type != FileType::kDirectory) return nullptr;
  names.emplace();
  tree_.read_directory(*found, 0, [&](std::string_view name, index::Nid file, FileType type, std::uint64_t) {
    if (name.starts_with('.')) return true;
    if (!has_room(name.size() + kMapBytes)) return false;
    names->emplace(name, Entry{.file = file, .type = type});
    return true;
  });
  for (auto& [name, entry] : *names) {
    if (entry.type != FileType::kSymlink) continue;
    const auto target = tree_.resolve(path + "/" + name, true);
    if (target) entry = {.file = *target, .type = tree_.inode(*target).type};
  }
  return &*names;
}

// The names of one module.
class ImportTable::Finder {
 public:
  Finder(const Imported& importer, const std::set<std::string>& roots, Search& search)
      : suffix_(suffix_of(importer.name)),
        tag_(tag_of(importer.name)),
        package_(parent_of(importer.folder)),
        search_(search) {
    for (const auto& root : roots) {
      const auto of_version = tag_of_version(name_of(root));
      const auto around = tag_of_version(name_of(parent_of(root)));
      if ((!of_version.empty() && of_version != tag_) || (!around.empty() && around != tag_)) continue;
      roots_.push_back(root);
    }
    std::ranges::stable_sort(roots_, std::greater(), [&](const auto& root) { return in_common(root, package_); });
  }

  void look_for(const index::PythonImport& import) {
    if (import.name.size() > kMaxName) return;
    if (import.level == 0) {
      if (minor_of(tag_) >= ImportTable::kFirstWithFrozen && std::ranges::find(kFrozen, import.name) != kFrozen.end())
        return;
      for (const auto& root : roots_)
        if (look_in(root, import)) return;
      return;
    }
    std::string_view base = package_;
    for (std::uint32_t level = 1; level < import.level; ++level) base = parent_of(base);
    if (!base.empty()) look_in(std::string(base), import);
  }

  std::vector<Imported> found;

 private:
  using Kind = Imported::Kind;
  using Is = Search::Is;

  // False if another folder may have it: nothing of that name is there, or folders without __init__, which may lie in
  // several.
  bool look_in(const std::string& folder, const index::PythonImport& import) {
    auto at = folder;
    auto is = Is::kPackage;
    for (const auto& part : split_words(import.name, ".")) {
      const auto before = is;
      is = look_at(at, part);
      if (is == Is::kAbsent) return at != folder && before != Is::kFolder;
      at.append("/").append(part);
    }
    if (is != Is::kModule)
      for (const auto& member : import.members) look_at(at, member);
    return is != Is::kFolder;
  }

  Is look_at(const std::string& folder, std::string_view part) {
    if (part.size() > kMaxPart || search_.look_ups_ == Search::kMaxLookUps) return Is::kAbsent;
    ++search_.look_ups_;
    const std::string name(part);
    const auto path = folder + "/" + name;
    if (const auto known = search_.found_.find(path); known != search_.found_.end()) return known->second;
    const auto* names = search_.folder(folder);
    if (names == nullptr) return Is::kAbsent;
    const auto itself = names->find(name);
    const bool is_folder = itself != names->end() && itself->second.type == FileType::kDirectory;
    const bool is_package = is_folder && (add(cache_of(path), "__init__" + suffix_, Kind::kBytecode) ||
                                          add(path, "__init__.py", Kind::kSource));
    const bool is_module =
        !is_package && (add_library(folder, name) || add(cache_of(folder), name + suffix_, Kind::kBytecode) ||
                        add(folder, name + ".py", Kind::kSource));
    if (!is_folder && !is_module) return Is::kAbsent;
    const auto is = is_package ? Is::kPackage : is_module ? Is::kModule : Is::kFolder;
    if (search_.has_room(path.size() + kMapBytes)) search_.found_.emplace(path, is);
    return is;
  }

  bool add_library(const std::string& folder, const std::string& name) {
    for (const std::string machine : {"-x86_64-linux-gnu", "-aarch64-linux-gnu"})
      if (add(folder, name + "." + tag_ + machine + ".so", Kind::kLibrary)) return true;
    return add(folder, name + ".abi3.so", Kind::kLibrary) || add(folder, name + ".so", Kind::kLibrary);
  }

  // If it is there.
  bool add(const std::string& folder, const std::string& name, Kind kind) {
    const auto* names = search_.folder(folder);
    const auto entry = names == nullptr ? Search::Folder::const_iterator() : names->find(name);
    if (names == nullptr || entry == names->end() || entry->second.type != FileType::kRegular) return false;
    found.push_back({.kind = kind, .file = entry->second.file, .folder = folder, .name = name});
    return true;
  }

  const std::string suffix_, tag_;
  const std::string package_;
  Search& search_;
  std::vector<std::string> roots_;
};

std::vector<ImportTable::Imported> ImportTable::find(const Imported& importer,
                                                     const std::vector<index::PythonImport>& imports,
                                                     Search& search) const {
  Finder finder(importer, roots_, search);
  for (const auto& import : imports) finder.look_for(import);
  return std::move(finder.found);
}

}  // namespace varve::fuse
