#include "fuse/daemon/loader/python_start.h"

#include <array>
#include <charconv>

#include <fmt/format.h>

#include "core/base/text/image_path.h"

namespace varve::fuse {
namespace {

constexpr std::size_t kMaxSettings = 256;    // .pth files
constexpr std::size_t kMaxLooked = 100'000;  // names in folders of packages
// PEP 538: without another locale Python takes this one.
constexpr auto kLocale = std::to_array<std::string_view>(
    {"usr/lib/locale/C.utf8/LC_CTYPE", "usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
     "usr/lib/aarch64-linux-gnu/gconv/gconv-modules.cache", "usr/lib64/gconv/gconv-modules.cache", "etc/localtime"});
// What no Python has in its program, and what those before kFirstWithFrozen have not; with what these import.
constexpr auto kModules = std::to_array<std::string_view>(
    {"encodings/__pycache__/__init__", "encodings/__pycache__/aliases", "encodings/__pycache__/utf_8"});
constexpr auto kModulesBefore =
    std::to_array<std::string_view>({"__pycache__/io", "__pycache__/abc", "__pycache__/site"});

class PythonStart {
 public:
  PythonStart(const index::ErofsReader& tree, const std::string& folder, unsigned minor)
      : tree_(tree), prefix_(parent_of(folder)), minor_(minor) {}

  std::vector<ImportTable::Imported> find() && {
    const auto library = join_path(prefix_, fmt::format("lib/python3.{}", minor_));
    for (const auto path : kLocale) add(std::string(path));
    for (const auto module : kModules) add_module(library, module);
    if (minor_ < ImportTable::kFirstWithFrozen)
      for (const auto module : kModulesBefore) add_module(library, module);
    add(join_path(prefix_, "pyvenv.cfg"));
    // Debian's Python has those of packages, of pip, and of all versions.
    add_settings(join_path(library, "site-packages"));
    add_settings(join_path(library, "dist-packages"));
    add_settings(join_path(prefix_, fmt::format("local/lib/python3.{}/dist-packages", minor_)));
    add_settings(join_path(prefix_, "lib/python3/dist-packages"));
    add_module(library, "__pycache__/sitecustomize");
    return std::move(found_);
  }

 private:
  void add(const std::string& path) {
    const auto file = tree_.resolve(path, true);
    if (file && tree_.inode(*file).type == FileType::kRegular)
      found_.push_back({.file = *file, .folder = std::string(parent_of(path)), .name = std::string(name_of(path))});
  }

  void add_module(const std::string& library, std::string_view module) {
    add(fmt::format("{}/{}.cpython-3{}.pyc", library, module, minor_));
  }

  // NAME.pth, each of which site.py reads.
  void add_settings(const std::string& folder) {
    const auto there = tree_.resolve(folder, true);
    if (!there || tree_.inode(*there).type != FileType::kDirectory) return;
    tree_.read_directory(*there, 0, [&](std::string_view name, index::Nid file, FileType type, std::uint64_t) {
      if (type == FileType::kRegular && name.ends_with(".pth") && !name.starts_with('.') && ++settings_ <= kMaxSettings)
        found_.push_back({.file = file, .folder = folder, .name = std::string(name)});
      return ++looked_ < kMaxLooked;
    });
  }

  const index::ErofsReader& tree_;
  const std::string prefix_;
  const unsigned minor_;
  std::size_t looked_ = 0, settings_ = 0;
  std::vector<ImportTable::Imported> found_;
};

}  // namespace

unsigned python_minor_of(std::string_view name) {
  constexpr std::string_view kPrefix = "python3.";
  if (!name.starts_with(kPrefix)) return 0;
  unsigned minor = 0;
  const auto* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, minor);
  return error == std::errc() && rest == end && minor < 1000 ? minor : 0;
}

std::vector<ImportTable::Imported> read_by_python(const index::ErofsReader& tree, const std::string& folder,
                                                  unsigned minor) {
  return PythonStart(tree, folder, minor).find();
}

}  // namespace varve::fuse
