#include "analyzer/notebooks/folder_walk.h"

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

namespace varve::notebooks {
namespace {

namespace fs = std::filesystem;

using Problem = std::function<void(const fs::path&, std::string&&)>;

// A folder that is being walked: what is wanted of it, and how far it was given out.
struct OpenFolder {
  fs::path path;
  std::vector<std::string>
      names;  // folders end with '/', so that sorted names are in the byte order of the paths below them
  std::size_t next = 0;
};

bool is_environment(const fs::path& folder) {
  std::error_code absent;
  return fs::exists(folder / "pyvenv.cfg", absent) || fs::exists(folder / "conda-meta", absent);
}

class Walk {
 public:
  Walk(const CancelFlag& cancel, const std::function<void(FoundFile&&)>& found, const Problem& problem)
      : cancel_(cancel), found_(found), problem_(problem) {}

  void walk_given(const fs::path& path) {
    std::error_code error;
    const auto status = fs::status(path, error);
    if (status.type() == fs::file_type::directory) return walk_folder(path);
    if (status.type() != fs::file_type::regular)
      return problem_(path, error ? error.message() : "neither a file nor a folder");
    const auto kind = kind_of_name(path.filename().native());
    if (kind == FileKind::kOther) return problem_(path, "neither notebook nor script nor archive by its name");
    found_({.path = path, .root = path.parent_path(), .kind = kind});
  }

  WalkResult result() const { return result_; }

 private:
  void walk_folder(const fs::path& root) {
    std::vector<OpenFolder> open;
    open.push_back(list(root));
    while (!open.empty()) {
      cancel_.throw_if_cancelled();
      auto& folder = open.back();
      if (folder.next == folder.names.size()) {
        open.pop_back();
        continue;
      }
      auto& name = folder.names[folder.next++];
      if (name.back() != '/') {
        const auto kind = kind_of_name(name);
        found_({.path = folder.path / name, .root = root, .kind = kind});
        std::string().swap(name);
        continue;
      }
      name.pop_back();
      auto inner = folder.path / name;
      if (!is_environment(inner)) open.push_back(list(inner));
    }
  }

  OpenFolder list(const fs::path& path) {
    OpenFolder folder{.path = path, .names = {}, .next = 0};
    std::error_code error;
    fs::directory_iterator entries(path, error);
    while (!error && entries != fs::directory_iterator()) {
      take(*entries, folder.names);
      entries.increment(error);
    }
    if (error) problem_(path, "the folder cannot be read: " + error.message());
    std::sort(folder.names.begin(), folder.names.end());
    return folder;
  }

  void take(const fs::directory_entry& entry, std::vector<std::string>& names) {
    std::error_code gone;
    auto name = entry.path().filename().native();
    const auto type = entry.symlink_status(gone).type();
    if (type == fs::file_type::directory) {
      if (!is_passed_over(name)) names.push_back(std::move(name) + '/');
      return;
    }
    const bool readable =
        type == fs::file_type::regular || (type == fs::file_type::symlink && entry.is_regular_file(gone));
    if (readable && kind_of_name(name) != FileKind::kOther) {
      names.push_back(std::move(name));
    } else {
      ++result_.skipped;
    }
  }

  const CancelFlag& cancel_;
  const std::function<void(FoundFile&&)>& found_;
  const Problem& problem_;
  WalkResult result_;
};

bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// Sorted, each once, and none that another one holds.
std::vector<fs::path> distinct(const std::vector<fs::path>& paths) {
  const auto without_end_slash = [](fs::path path) {
    return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
  };
  std::vector<std::pair<fs::path, fs::path>>
      sorted;  // by whole path, part by part: what a folder holds comes right behind it
  for (const auto& path : paths)
    sorted.emplace_back(without_end_slash(fs::absolute(path).lexically_normal()),
                        without_end_slash(path.lexically_normal()));
  std::sort(sorted.begin(), sorted.end());
  std::vector<fs::path> kept;
  const fs::path* last_kept = nullptr;
  for (const auto& [whole, given] : sorted) {
    if (last_kept != nullptr && lies_in(whole, *last_kept)) continue;
    last_kept = &whole;
    kept.push_back(given);
  }
  return kept;
}

}  // namespace

WalkResult walk(const std::vector<fs::path>& paths, const CancelFlag& cancel,
                const std::function<void(FoundFile&&)>& found, const Problem& problem) {
  Walk walker(cancel, found, problem);
  for (const auto& path : distinct(paths)) walker.walk_given(path);
  return walker.result();
}

}  // namespace varve::notebooks
