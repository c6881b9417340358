#include "analyzer/packages/internal/interpreters.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/text/image_path.h"
#include "core/base/text/strings.h"

namespace varve::packages::internal {
namespace {

constexpr std::string_view kDefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::string_view kNewestPython = "3.14";
constexpr std::size_t kMaxSites = 1000;  // of one interpreter

// "3.11" of "python3.11"; "" if the name says no more than a major version, or is no interpreter's.
std::string version_in_name(std::string_view name) {
  if (!name.starts_with("python")) return "";
  name.remove_prefix(6);
  const auto dot = name.find('.');
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.size() <= 3 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  };
  if (dot == std::string_view::npos || !digits(name.substr(0, dot)) || !digits(name.substr(dot + 1))) return "";
  return std::string(name);
}

// An absolute path of the image as the table has it.
struct Prefix {
  std::string path;     // "" = the root
  std::string version;  // "3.11"
  bool operator<(const Prefix& other) const { return std::tie(path, version) < std::tie(other.path, other.version); }
};

class InterpreterFinder {
 public:
  InterpreterFinder(const index::FileSource& source, const FileTable& table, const Records& records)
      : source_(source), table_(table), records_(records), environment_(source.facts().environment) {}

  std::vector<Interpreter> find() {
    find_prefixes();
    std::vector<Interpreter> found;
    for (const auto& prefix : prefixes_) {
      if (found.size() == kMaxInterpreters) break;
      if (auto interpreter = make(prefix)) found.push_back(std::move(*interpreter));
    }
    put_first(found);
    return found;
  }

 private:
  std::string environment(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }

  // lib/pythonX.Y with a standard library, or of a virtual environment.
  void find_prefixes() {
    for (FileId id = 0; id < table_.size(); ++id) {
      if (!table_.is_folder(id)) continue;
      const auto path = table_.path(id);
      const auto version = version_in_name(name_of(path));
      const auto library = parent_of(path);
      if (version.empty() || (name_of(library) != "lib" && name_of(library) != "lib64")) continue;
      const auto prefix = std::string(parent_of(library));
      const bool standard = table_.find(join_path(path, "os.py")) || table_.find(join_path(path, "os.pyc"));
      if (standard || records_.venvs.contains(prefix)) prefixes_.insert({prefix, version});
    }
  }

  std::optional<Interpreter> make(const Prefix& prefix) {
    const auto venv = records_.venvs.find(prefix.path);
    Interpreter interpreter;
    for (const auto* name : {"python3", "python"}) {
      const auto path = join_path(prefix.path, std::string("bin/") + name);
      const auto exact = join_path(prefix.path, "bin/python" + prefix.version);
      if (table_.find(exact)) {
        interpreter.executable = exact;
      } else if (table_.find(path) && interpreter.executable.empty()) {
        interpreter.executable = path;
      }
    }
    if (interpreter.executable.empty()) return std::nullopt;  // a standard library alone: sources, or another build's
    interpreter.version = full_version(prefix);
    interpreter.sites = sites_of(prefix, venv == records_.venvs.end() ? nullptr : &venv->second);
    interpreter.environment = marker_environment(interpreter.version, source_.facts().architecture);
    return interpreter;
  }

  bool fits(const std::string& full, const std::string& minor) const {
    return full == minor || full.starts_with(minor + ".");
  }

  std::string full_version(const Prefix& prefix) const {
    if (const auto venv = records_.venvs.find(prefix.path); venv != records_.venvs.end()) {
      if (fits(venv->second.version, prefix.version)) return venv->second.version;
    }
    const auto header =
        records_.patch_levels.find(join_path(prefix.path, "include/python" + prefix.version + "/patchlevel.h"));
    if (header != records_.patch_levels.end() && fits(header->second, prefix.version)) return header->second;
    for (const auto& record : records_.records) {
      if (record.kind == RecordKind::kConda && record.site == prefix.path && record.name == "python" &&
          fits(record.version, prefix.version))
        return record.version;
      if (record.kind == RecordKind::kDpkg && prefix.path == "usr" &&
          record.name == "python" + prefix.version + "-minimal") {
        auto version = record.version.substr(0, record.version.find_first_of("-~+"));
        version = version.substr(version.find(':') + 1);
        if (fits(version, prefix.version)) return version;
      }
    }
    const auto said = environment("PYTHON_VERSION");  // of the official images, which build it into /usr/local
    if (fits(said, prefix.version)) return said;
    return prefix.version;
  }

  void add_site(std::vector<std::string>& sites, std::string_view path) const {
    const auto real = table_.real_folder(path);
    if (real && sites.size() < kMaxSites && std::ranges::find(sites, *real) == sites.end()) sites.push_back(*real);
  }

  std::vector<std::string> sites_of(const Prefix& prefix, const python::VirtualEnvironment* venv) const {
    std::vector<std::string> sites;
    const auto python_path = environment("PYTHONPATH");
    for (const auto path : split_words(python_path, ":")) add_site(sites, std::string(without_leading_slashes(path)));
    if (venv == nullptr || venv->system_site_packages) add_user_sites(sites, prefix.version);
    add_own_sites(sites, prefix);
    if (venv != nullptr && venv->system_site_packages) {
      auto home = std::string(without_leading_slashes(venv->home));
      if (const auto real = table_.real_folder(home)) home = *real;
      if (name_of(home) == "bin") add_own_sites(sites, {std::string(parent_of(home)), prefix.version});
    }
    return sites;
  }

  void add_user_sites(std::vector<std::string>& sites, const std::string& version) const {
    const auto below = ".local/lib/python" + version + "/site-packages";
    add_site_with_paths(sites, join_path("root", below));
    table_.children("home", [&](FileId, std::string_view user) {
      add_site_with_paths(sites, join_path(join_path("home", user), below));
    });
  }

  void add_own_sites(std::vector<std::string>& sites, const Prefix& prefix) const {
    const auto library = "lib/python" + prefix.version;
    // As Debian patches it (site.py, "dist-packages"). Either folder may be left out of an image.
    const auto local = "usr/local/" + library + "/dist-packages";
    if (prefix.path == "usr" && (table_.find("usr/lib/python3/dist-packages") || table_.find(local))) {
      for (const auto& site :
           {local, std::string("usr/lib/python3/dist-packages"), "usr/" + library + "/dist-packages"})
        add_site_with_paths(sites, site);
      return;
    }
    for (const auto* folder : {"site-packages", "dist-packages"}) {
      add_site_with_paths(sites, join_path(prefix.path, library + "/" + folder));
      add_site_with_paths(sites, join_path(prefix.path, "lib64/python" + prefix.version + "/" + folder));
    }
  }

  // The folder, and what its .pth files add: each in the order of names, after the folder itself.
  void add_site_with_paths(std::vector<std::string>& sites, const std::string& path) const {
    const auto real = table_.real_folder(path);
    if (!real) return;
    add_site(sites, *real);
    const auto first = records_.path_files.lower_bound(join_path(*real, ""));
    for (auto file = first; file != records_.path_files.end() && file->first.starts_with(*real); ++file) {
      if (parent_of(file->first) != *real) continue;
      for (const auto& added : file->second.paths) {
        if (const auto folder = python::resolve_path(*real, added)) add_site(sites, *folder);
      }
    }
  }

  // What `python3` means: the first of that name on PATH. One of a virtual environment is a link to its base's, so the
  // folder decides first.
  void put_first(std::vector<Interpreter>& found) const {
    auto path = environment("PATH");
    if (path.empty()) path = kDefaultPath;
    for (const auto folder : split_words(path, ":")) {
      const auto real = table_.real_folder(std::string(without_leading_slashes(folder)));
      if (!real) continue;
      const auto name = table_.find(join_path(*real, "python3"));
      if (!name) continue;
      const auto target = table_.resolve(table_.path(*name), true);
      auto chosen = found.end();
      for (auto one = found.begin(); one != found.end(); ++one) {
        const bool same_folder = parent_of(one->executable) == *real;
        const bool same_file = target && table_.resolve(one->executable, true) == target;
        if (same_folder && (same_file || !target)) chosen = one;
      }
      if (chosen == found.end() && target)
        chosen = std::ranges::find_if(
            found, [&](const Interpreter& one) { return table_.resolve(one.executable, true) == target; });
      if (chosen == found.end()) continue;
      std::rotate(found.begin(), chosen, chosen + 1);
      return;
    }
  }

  const index::FileSource& source_;
  const FileTable& table_;
  const Records& records_;
  const std::map<std::string, std::string>& environment_;
  std::set<Prefix> prefixes_;
};

}  // namespace

std::vector<Interpreter> find_interpreters(const index::FileSource& source, const FileTable& table,
                                           const Records& records) {
  return InterpreterFinder(source, table, records).find();
}

std::string minor_of(std::string_view version) {
  const auto dot = version.find('.');
  if (dot == std::string_view::npos) return std::string(version);
  return std::string(version.substr(0, version.find('.', dot + 1)));
}

int minor_number(std::string_view version) {
  int major = 0;
  int minor = 0;
  const auto dot = version.find('.');
  if (dot == std::string_view::npos) return 0;
  const auto rest = version.substr(dot + 1);
  if (std::from_chars(version.data(), version.data() + dot, major).ec != std::errc()) return 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), minor).ec != std::errc() || major < 0 || major > 9 ||
      minor < 0 || minor > 99)
    return 0;
  return major * 100 + minor;
}

python::Environment marker_environment(const std::string& version, const std::string& architecture) {
  const auto full = version.empty() ? std::string(kNewestPython) : version;
  std::string machine = architecture;
  if (architecture == "amd64") machine = "x86_64";
  if (architecture == "arm64") machine = "aarch64";
  if (architecture == "386") machine = "i686";
  if (architecture == "arm") machine = "armv7l";
  const bool has_patch = std::ranges::count(full, '.') >= 2;
  return {{"python_version", minor_of(full)},
          {"python_full_version", has_patch ? full : full + ".0"},
          {"implementation_name", "cpython"},
          {"implementation_version", has_patch ? full : full + ".0"},
          {"platform_python_implementation", "CPython"},
          {"os_name", "posix"},
          {"sys_platform", "linux"},
          {"platform_system", "Linux"},
          {"platform_machine", machine},
          {"platform_release", ""},
          {"platform_version", ""}};
}

}  // namespace varve::packages::internal
