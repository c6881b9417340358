#pragma once
// Which files the dynamic loader would take for the libraries that a file needs, without running it. ld.so(8), elf/dl-load.c of glibc 2.36;
// /etc/ld.so.cache: elf/cache.c (format "glibc-ld.so.cache1.1").
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/flat_tree.h"

namespace varve::elf {

struct LoaderOptions {
  std::string library_path;       // LD_LIBRARY_PATH of the image's config
  std::string cache;              // content of etc/ld.so.cache; "" = none. A broken one is a problem, and the rest goes on without
};

struct Resolution {
  std::string needed;                // "libcublas.so.12", or a path with "/"
  std::vector<std::string> matches;  // every file that some loader state could take, real paths, in the order of the search; empty = not found
  bool sibling = false;              // found only because it lies in the same folder (Python has usually loaded it before)
};

// Not shared between threads. The tree must outlive it and have ELF facts.
class Loader {
 public:
  Loader(const index::FlatTree& tree, const LoaderOptions& options);
  // By the real path of a file of the tree; empty if it needs nothing or is no ELF file. RPATHs are inherited from `loaded_by` (real paths, nearest first).
  std::vector<Resolution> resolve(std::string_view path, const std::vector<std::string>& loaded_by = {}) const;
  // A bare name as dlopen(3) of that file would look for it.
  Resolution resolve_name(std::string_view path, std::string_view name) const;
  // Symbolic links followed inside the image; "" if it leads nowhere.
  std::string real_path(std::string_view path) const;
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  const index::FlatTree& tree_;
  LoaderOptions options_;
  std::map<std::string, std::vector<std::string>> cache_;  // soname -> paths, for the image's own machine type
  std::vector<std::string> problems_;
};

}  // namespace varve::elf
