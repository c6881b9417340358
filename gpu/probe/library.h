#pragma once
// Shared libraries of the image, found as its own programs find them. Used by one thread.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/probe/api/functions.h"
#include "gpu/probe/report.h"

namespace varve::gpu::probe {

// A library under the names of its versions that we know the interface of, newest first: {"libcublas.so.13",
// "libcublas.so.12"}.
using LibraryNames = std::vector<std::string>;

// Folders that are looked through by file name after the loader's own search, as torch and JAX do with the nvidia
// packages of site-packages.
class LibraryFolders {
 public:
  // Each of `given` itself, and nvidia/*/lib in it. With none given: the site-packages where Python installations
  // usually have them, and those of an active environment.
  explicit LibraryFolders(const std::vector<std::string>& given);
  const std::vector<std::filesystem::path>& folders() const { return folders_; }
  std::optional<std::filesystem::path> find(std::string_view file_name) const;

 private:
  std::vector<std::filesystem::path> folders_;
};

// A library that is there and does not open. The text has the loader's words.
class LoadError : public Error {
 public:
  LoadError(const std::string& text, std::string missing_library) : Error(text), missing(std::move(missing_library)) {}
  std::string missing;  // the name of the library that it needs and that is nowhere; "" if something else is wrong
};

// A library of this process. It is never closed: those of CUDA do not survive that reliably.
class Library {
 public:
  // Each name by the loader's rules (LD_LIBRARY_PATH, its cache, the default folders), then in `folders`. Nothing if
  // there is no such file. Throws LoadError if there is one that cannot be opened.
  static std::optional<Library> find(const LibraryNames& names, const LibraryFolders& folders);
  // As find(), but throws Skip that names what was looked for.
  static Library open(const LibraryNames& names, const LibraryFolders& folders);
  // One file, with RTLD_NOW. What it needs and the loader does not find is opened first if `folders` have it. Throws
  // LoadError.
  static Library open_file(const std::filesystem::path& path, const LibraryFolders& folders);

  const std::string& name() const { return name_; }  // that it was found by
  const std::string& path() const { return path_; }  // the file, as the loader knows it
  void* symbol(const char* symbol_name) const;       // throws Error naming library and symbol
  void* find_symbol(const char* symbol_name) const;  // nullptr if it is missing

 private:
  Library(void* handle, std::string name);
  void* handle_;
  std::string name_, path_;
};

// Opens what a library that is used next will itself open by name, in the middle of its work: NVRTC its built-in
// functions, cuDNN cublasLt. The loader finds none of the wheels' by name, so torch opens them beforehand, too. A name
// that is nowhere is left out: it may not be needed. Throws LoadError.
void open_beforehand(const LibraryNames& names, const LibraryFolders& folders);

// Functions of one interface (gpu/probe/api) in one library.
template <typename Functions>
class Api : public Functions {
 public:
  // Throws Error naming the first function that is required and missing.
  explicit Api(Library from) : library(std::move(from)) {
    this->bind_required([this](const char* name) { return library.symbol(name); });
    this->bind_optional([this](const char* name) { return library.find_symbol(name); });
  }

  // Calls; throws Error naming the function, what it returned and the library, unless that is 0.
  template <typename Function, typename... Arguments>
  void call(const Function& function, Arguments... arguments) const {
    if (const int status = function(arguments...))
      fail<Error>("{} returned {} ({})", function.name, error_name(*this, status), library.path());
  }

  Library library;
};

// What a function of a library made and another ends. Must be gone before the library's functions are.
template <typename T>
class Handle {
 public:
  // `nothing` is what no function makes.
  explicit Handle(const api::Function<int(T)>& end, T nothing = T{})
      : end_(end.address), value_(nothing), nothing_(nothing) {}
  ~Handle() {
    if (value_ != nothing_) end_(value_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  T get() const { return value_; }
  T* out() { return &value_; }  // for the function that makes it

 private:
  int (*end_)(T);
  T value_, nothing_;
};

}  // namespace varve::gpu::probe
