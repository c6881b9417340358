#include <algorithm>
#include <charconv>
#include <set>

#include "analyzer/recorder/install.h"
#include "core/base/text/image_path.h"
#include "core/base/text/strings.h"

namespace varve::recorder {
namespace {

// Where Pythons are installed; "*" stands for any one name. Below each lies lib/python3.N/site-packages or the like.
constexpr std::string_view kPrefixes[] = {
    "",  // the tree is itself a prefix: a virtual environment, a Python of its own
    "usr",
    "usr/local",
    "opt/*",  // conda, python, venv
    "opt/*/envs/*",
    "usr/local/share/uv/python/*",
    "opt/uv/python/*",
    "root/.local/share/uv/python/*",
    "home/*/.local/share/uv/python/*",
    "root/.pyenv/versions/*",
    "home/*/.pyenv/versions/*",
    "opt/*/versions/*",  // pyenv for all
    "root/miniconda3",
    "root/mambaforge",
    "home/*/miniconda3",
    "home/*/.venv",
    "root/.venv",
    "venv",
    ".venv",
    "app/venv",
    "app/.venv",
    "srv/venv",
    "srv/.venv",
    "workspace/.venv",
};
// Folders of the user's own scheme (pip install --user while the image was built) start no .pth of other users, but of
// their own.
constexpr std::string_view kUserSchemes[] = {"root/.local", "home/*/.local"};

constexpr std::size_t kMaxPrefixes = 10'000;

// "python3.11", "python3": the folder of a Python that the recorder works in.
bool is_python_folder(std::string_view name) {
  if (name == "python3") return true;
  constexpr std::string_view kStart = "python3.";
  if (!name.starts_with(kStart)) return false;
  name.remove_prefix(kStart.size());
  if (name.ends_with('t')) name.remove_suffix(1);  // without the global lock
  unsigned minor = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), minor);
  return error == std::errc() && end == name.data() + name.size() && minor >= kOldestPythonMinor;
}

// All folders that a pattern stands for; those that are not there are left in where no "*" asked for a listing.
std::vector<std::string> expand(const ListFolder& list, std::string_view pattern) {
  std::vector<std::string> paths{""};
  while (!pattern.empty()) {
    const auto part = pattern.substr(0, pattern.find('/'));
    pattern.remove_prefix(std::min(pattern.size(), part.size() + 1));
    std::vector<std::string> next;
    for (const auto& path : paths) {
      if (part != "*") {
        next.push_back(join_path(path, part));
        continue;
      }
      const auto folder = list(path);
      if (!folder) continue;
      for (const auto& name : folder->names)
        if (next.size() < kMaxPrefixes) next.push_back(join_path(path, name));
    }
    paths = std::move(next);
  }
  return paths;
}

// What the environment of an image names: "/opt/tool/bin" of $PATH is of the prefix "opt/tool".
std::vector<std::string> prefixes_of(const std::map<std::string, std::string>& environment) {
  std::vector<std::string> prefixes;
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string_view() : std::string_view(found->second);
  };
  for (const auto* name : {"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DIR", "PYTHONHOME"})
    if (value(name).starts_with('/')) prefixes.emplace_back(trimmed(value(name), "/"));
  auto path = value("PATH");
  while (!path.empty()) {
    const auto folder = path.substr(0, path.find(':'));
    path.remove_prefix(std::min(path.size(), folder.size() + 1));
    const std::string clean(trimmed(folder, "/"));
    if (folder.starts_with('/') && clean.ends_with("/bin")) prefixes.push_back(clean.substr(0, clean.size() - 4));
  }
  return prefixes;
}

class Search {
 public:
  explicit Search(const ListFolder& list) : list_(list) {}

  void look_below(const std::string& prefix) {
    if (!seen_prefixes_.insert(prefix).second) return;
    for (const auto* lib : {"lib", "lib64"}) {
      const auto libraries = list_(join_path(prefix, lib));
      if (!libraries) continue;
      for (const auto& name : libraries->names)
        if (is_python_folder(name)) look_into(join_path(join_path(prefix, lib), name));
    }
  }

  std::vector<std::string> take() {
    std::sort(found_.begin(), found_.end());
    return std::move(found_);
  }

 private:
  void look_into(const std::string& python) {
    for (const auto* name : {"site-packages", "dist-packages"}) {
      const auto path = join_path(python, name);
      if (!is_site_folder(path)) continue;
      const auto folder = list_(path);
      if (folder && seen_.insert(folder->identity).second) found_.push_back(path);
    }
  }

  const ListFolder& list_;
  std::set<std::string> seen_prefixes_;
  std::set<std::uint64_t> seen_;
  std::vector<std::string> found_;
};

}  // namespace

bool is_site_folder(std::string_view path) {
  const auto name = name_of(path);
  const auto python = name_of(parent_of(path));
  if (!is_python_folder(python)) return false;
  return name == "dist-packages" || (name == "site-packages" && python != "python3");
}

std::vector<std::string> site_folders(const ListFolder& list, const std::map<std::string, std::string>& environment) {
  Search search(list);
  for (const auto pattern : kPrefixes)
    for (const auto& prefix : expand(list, pattern)) search.look_below(prefix);
  for (const auto& prefix : prefixes_of(environment)) search.look_below(prefix);
  auto found = search.take();
  if (!found.empty()) return found;
  for (const auto pattern : kUserSchemes)
    for (const auto& prefix : expand(list, pattern)) search.look_below(prefix);
  return search.take();
}

}  // namespace varve::recorder
