#include "gpu/probe/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/base/free_with.h"

namespace varve::gpu::probe {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxOpenedFirst = 32;  // libraries that one library may need opened before it

std::vector<fs::path> matching(const std::string& pattern) {
  std::vector<fs::path> found;
  glob_t matches{};
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0)
    found.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  return found;
}

std::vector<std::string> usual_site_packages() {
  std::vector<std::string> patterns;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* prefix = std::getenv(variable); prefix && *prefix) patterns.push_back(prefix);
  }
  for (const char* prefix : {"/usr/local", "/usr", "/opt/conda"}) patterns.emplace_back(prefix);
  std::vector<std::string> found;
  for (const auto& prefix : patterns) {
    for (const char* below : {"/lib/python3*/site-packages", "/lib/python3*/dist-packages"}) {
      for (auto& folder : matching(prefix + below)) found.push_back(folder.string());
    }
  }
  return found;
}

struct Opened {
  void* handle = nullptr;
  std::string error;
};

Opened try_open(const std::string& name) {
  ::dlerror();
  Opened opened{::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL), {}};
  if (!opened.handle) {
    const char* words = ::dlerror();
    opened.error = words ? words : name + ": dlopen failed without a reason";
  }
  return opened;
}

// The NAME of "NAME: cannot open shared object file: No such file or directory", which is how glibc says that a file is
// not there; "" if the words are others.
std::string missing_library(std::string_view loader_words) {
  constexpr std::string_view kWords = ": cannot open shared object file: No such file or directory";
  const auto at = loader_words.find(kWords);
  return at == std::string_view::npos ? std::string() : std::string(loader_words.substr(0, at));
}

// torch and JAX load the libraries of the wheels in an order that needs no search paths in them; here the order is
// found by trying.
Opened open_with_needed(const std::string& name, const LibraryFolders& folders, int depth = 0) {
  auto opened = try_open(name);
  for (int i = 0; !opened.handle && i < kMaxOpenedFirst && depth < kMaxOpenedFirst; ++i) {
    const auto missing = missing_library(opened.error);
    const auto found = missing.empty() || missing == name ? std::nullopt : folders.find(missing);
    if (!found || !open_with_needed(found->string(), folders, depth + 1).handle) break;
    opened = try_open(name);
  }
  return opened;
}

[[noreturn]] void fail_to_open(const std::string& name, const std::string& error) {
  const auto missing = missing_library(error);
  throw LoadError(error.starts_with(name) ? error : fmt::format("{} cannot be opened: {}", name, error),
                  missing == name ? "" : missing);
}

}  // namespace

LibraryFolders::LibraryFolders(const std::vector<std::string>& given) {
  for (const auto& folder : given.empty() ? usual_site_packages() : given) {
    if (!given.empty()) folders_.emplace_back(folder);
    for (auto& lib : matching(folder + "/nvidia/*/lib")) folders_.push_back(std::move(lib));
  }
}

std::optional<fs::path> LibraryFolders::find(std::string_view file_name) const {
  for (const auto& folder : folders_) {
    std::error_code ignored;
    if (auto path = folder / file_name; fs::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

Library::Library(void* handle, std::string name) : handle_(handle), name_(std::move(name)), path_(name_) {
  link_map* map = nullptr;
  if (::dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map->l_name && *map->l_name) path_ = map->l_name;
}

std::optional<Library> Library::find(const LibraryNames& names, const LibraryFolders& folders) {
  for (const auto& name : names) {
    const auto opened = open_with_needed(name, folders);
    if (opened.handle) return Library(opened.handle, name);
    if (missing_library(opened.error) != name) fail_to_open(name, opened.error);
    if (const auto path = folders.find(name)) return open_file(*path, folders);
  }
  return std::nullopt;
}

Library Library::open(const LibraryNames& names, const LibraryFolders& folders) {
  if (auto library = find(names, folders)) return std::move(*library);
  fail<Skip>("{}: not found by the loader nor in {} other folders", fmt::join(names, ", "), folders.folders().size());
}

Library Library::open_file(const fs::path& path, const LibraryFolders& folders) {
  const auto opened = open_with_needed(path.string(), folders);
  if (!opened.handle) fail_to_open(path.string(), opened.error);
  return Library(opened.handle, path.filename().string());
}

void open_beforehand(const LibraryNames& names, const LibraryFolders& folders) {
  for (const auto& name : names) Library::find({name}, folders);
}

void* Library::symbol(const char* symbol_name) const {
  ::dlerror();
  if (void* address = ::dlsym(handle_, symbol_name)) return address;
  const char* words = ::dlerror();
  fail<Error>("{} has no function {}: {}", path_, symbol_name, words ? words : "it is null");
}

void* Library::find_symbol(const char* symbol_name) const { return ::dlsym(handle_, symbol_name); }

}  // namespace varve::gpu::probe
