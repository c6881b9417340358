#pragma once
// Which files the dynamic loader would take for the libraries that a file needs, without running it. ld.so(8),
// elf/dl-load.c of glibc 2.36 (and its search in hwcaps subdirectories, old and new); /etc/ld.so.cache:
// core/index/elf/ld_cache.h. docs/design/elf-resolution.md says what is and what cannot be followed.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/merge/flat_tree.h"

namespace varve::elf {

struct LoaderOptions {
  std::string library_path;  // LD_LIBRARY_PATH of the image's config
  std::string cache;  // content of etc/ld.so.cache; "" = none. A broken one is a problem, and the rest goes on without
};

struct Resolution {
  std::string needed;                // "libcublas.so.12", or a path with "/"
  std::vector<std::string> matches;  // every file that some loader state could take, real paths, in the order of the
                                     // search; empty = not found
  bool sibling = false;  // found only because it lies in the same folder (Python has usually loaded it before)
  bool operator==(const Resolution&) const = default;
};

// Not shared between threads: it remembers directories that it has looked up. The tree must outlive it and have ELF
// facts.
class Loader {
 public:
  Loader(const index::FlatTree& tree, const LoaderOptions& options);
  ~Loader();
  Loader(Loader&&) noexcept;

  // By the real path of a file of the tree; empty if it needs nothing or is no ELF file. RPATHs are inherited from
  // `loaded_by` (real paths, nearest first). A path that is a link stands for the file opened by that name: $ORIGIN is
  // then the link's folder, as for ld.so; a real path stands for all its names.
  std::vector<Resolution> resolve(std::string_view path, const std::vector<std::string>& loaded_by = {}) const;
  // The same with the folders of inherited RPATHs already worked out (rpath_dirs of those that load it).
  std::vector<Resolution> resolve_inheriting(std::string_view path,
                                             const std::vector<std::string>& inherited_dirs) const;
  // The folders that DT_RPATH of a file adds for whatever it loads: empty if it has a RUNPATH. Real paths.
  std::vector<std::string> rpath_dirs(std::string_view path) const;
  // A bare name as dlopen(3) of that file would look for it.
  Resolution resolve_name(std::string_view path, std::string_view name) const;
  // The program's loader (PT_INTERP), real path; "" if it has none or it is not there.
  std::string interpreter(std::string_view path) const;

  // Symbolic links followed inside the image; "" if it leads nowhere. `links`, if given, gets every link on the way,
  // each once.
  std::string real_path(std::string_view path, std::vector<std::string>* links = nullptr) const;
  const index::FlatTree& tree() const;
  const std::vector<std::string>& problems() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a set of files needs, to a fixpoint, RPATHs inherited along every way by which a file can be loaded. Not shared
// between threads; the loader must outlive it.
class NeedsClosure {
 public:
  explicit NeedsClosure(const Loader& loader);
  // A file that is there by itself, or that `opener` opens with dlopen(3), which hands its RPATHs on. Real paths.
  void add(std::string_view path, std::string_view opener = {});
  // Follows every need, every match of it; `found` hears of each file once, with the one that needed it first.
  void run(const std::function<void(const std::string& path, const std::string& needed_by)>& found = {});
  // By real path: all files with needs that were added or found.
  const std::map<std::string, std::vector<Resolution>, std::less<>>& needs() const { return needs_; }

 private:
  using Dirs = std::vector<std::uint64_t>;  // a bit for each folder of dirs_
  struct File {
    std::string path;
    Dirs rpath, inherited;           // what it hands on by itself, and what it got
    std::set<std::size_t> loads;     // numbers of files
    bool searches_inherited = true;  // it has needs and no RUNPATH
    bool resolved = false;
    bool changed = true;  // since it was resolved
  };
  std::size_t number_of(std::string_view path);
  std::size_t number_of_dir(const std::string& dir);
  void link(std::size_t loader, std::size_t loaded);
  void hand_on();
  std::vector<std::string> dirs_of(const Dirs& dirs) const;

  const Loader& loader_;
  std::map<std::string, std::vector<Resolution>, std::less<>> needs_;
  std::vector<File> files_;
  std::map<std::string, std::size_t, std::less<>> numbers_, dir_numbers_;
  std::vector<std::string> dirs_;
  std::vector<std::size_t> to_hand_on_;
};

}  // namespace varve::elf
