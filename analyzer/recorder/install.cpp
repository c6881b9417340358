#include "analyzer/recorder/install.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::recorder {
namespace {

// Every file of ours begins so, whatever its version.
constexpr std::string_view kMark = "# Varve usage recorder ";
constexpr std::uint64_t kMaxRecorderFileBytes = 1u << 20;

std::filesystem::path real_folder(const Target& target, const std::string& folder) {
  if (folder.empty()) return target.root;
  const auto real = RootFolder(target.root).locate(folder);
  if (!real) fail<NotFound>("{}: no such folder in {}", folder, target.root.string());
  return *real;
}

FileState state_of(const std::filesystem::path& path, std::string_view expected) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return FileState::kAbsent;
    fail_errno("look at {}", path.string());
  }
  // A link or a folder of this name is somebody else's; so is what is far larger than ours.
  if (!S_ISREG(status.st_mode) || std::uint64_t(status.st_size) > kMaxRecorderFileBytes) return FileState::kForeign;
  const auto bytes = read_file(path, kMaxRecorderFileBytes);
  const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (content == expected) return FileState::kCurrent;
  return content.starts_with(kMark) ? FileState::kOther : FileState::kForeign;
}

SiteState look_at(const Target& target, const std::string& folder) {
  const auto real = real_folder(target, folder);
  SiteState site;
  site.path = folder.empty() ? target.root.string() : folder;
  std::size_t current = 0;
  std::size_t absent = 0;
  for (const auto& file : recorder_files()) {
    const auto state = state_of(real / file.name, file.content);
    if (state == FileState::kForeign) site.foreign.emplace_back(file.name);
    current += state == FileState::kCurrent ? 1 : 0;
    absent += state == FileState::kAbsent ? 1 : 0;
  }
  const auto all = recorder_files().size();
  site.state = !site.foreign.empty() ? FileState::kForeign
               : current == all      ? FileState::kCurrent
               : absent == all       ? FileState::kAbsent
                                     : FileState::kOther;
  return site;
}

// What Pythons made of our sources. A compiled file is checked against its source by time and size only, and the time
// of a file in an image may be set back, so none is left to lie beside another version.
void remove_compiled(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> compiled;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "__pycache__", none)) {
    const auto name = entry.path().filename().string();
    for (const auto& file : recorder_files()) {
      const auto stem = file.name.substr(0, file.name.rfind('.'));
      if (file.name.ends_with(".py") && name.starts_with(std::string(stem) + ".cpython-") && name.ends_with(".pyc"))
        compiled.push_back(entry.path());
    }
  }
  for (const auto& path : compiled) std::filesystem::remove(path, none);
}

bool has_switch_file(const std::filesystem::path& root) {
  std::error_code none;
  return RootFolder(root).locate(kSwitchFile).has_value() ||
         (root == "/" && std::filesystem::exists("/etc/varve/usage-off", none));
}

}  // namespace

Target find_target(const std::filesystem::path& dir) {
  const auto absolute = std::filesystem::absolute(dir).lexically_normal();
  const RootFolder folder(absolute);
  auto path = absolute.string();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  Target target{.root = path, .folders = {}, .switched_off = false};
  if (is_site_folder(path)) {
    target.folders = {""};
    return target;
  }
  target.folders = site_folders([&](const std::string& inside) { return folder.list(inside); });
  if (target.folders.empty())
    fail<NotFound>(
        "{}: no Python 3.{} or later in it; give the root of an image's file system, the folder of a Python or "
        "virtual environment (with lib/python3.N/site-packages), or a site folder itself",
        dir.string(), kOldestPythonMinor);
  target.switched_off = has_switch_file(absolute);
  return target;
}

std::vector<SiteState> status(const Target& target) {
  std::vector<SiteState> sites;
  for (const auto& folder : target.folders) sites.push_back(look_at(target, folder));
  return sites;
}

std::vector<SiteState> install(const Target& target) {
  auto sites = status(target);
  for (const auto& site : sites)
    if (!site.foreign.empty())
      fail<Unsupported>("{} in {} is not the recorder's and is left alone; nothing was installed", site.foreign.front(),
                        site.path);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (sites[i].state == FileState::kCurrent) continue;
    const auto real = real_folder(target, target.folders[i]);
    for (const auto& file : recorder_files())
      if (state_of(real / file.name, file.content) != FileState::kCurrent)
        write_file_atomically(real / file.name, as_bytes(file.content), 0644);
    remove_compiled(real);
    sites[i].state = FileState::kCurrent;
    sites[i].changed = true;
  }
  return sites;
}

std::vector<SiteState> uninstall(const Target& target) {
  auto sites = status(target);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const auto real = real_folder(target, target.folders[i]);
    const auto files = recorder_files();
    bool ours = false;
    for (auto file = files.rbegin(); file != files.rend(); ++file) {  // what starts it goes first
      const auto state = state_of(real / file->name, file->content);
      if (state != FileState::kCurrent && state != FileState::kOther) continue;
      std::filesystem::remove(real / file->name);
      ours = true;
    }
    if (ours) remove_compiled(real);
    sites[i].changed = ours;
    sites[i].state = sites[i].foreign.empty() ? FileState::kAbsent : FileState::kForeign;
  }
  return sites;
}

}  // namespace varve::recorder
