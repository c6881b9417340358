#pragma once
// Where the run-time recorder goes: its files, the folders of an image whose Pythons start it, and putting it there.
// docs/design/recorder.md.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/embedded.h"

namespace varve::recorder {

// What the recorder reads from its environment; docs/design/recorder.md says more.
inline constexpr const char* kSpoolVariable =
    "VARVE_USAGE_SPOOL";  // folder, absolute; absent = the recorder does nothing
inline constexpr const char* kSessionVariable =
    "VARVE_USAGE_SESSION";  // 32 lower case hex digits; else the first process draws one
inline constexpr const char* kImageVariable = "VARVE_IMAGE";  // "sha256:…" of the image manifest
inline constexpr const char* kStartedVariable =
    "VARVE_SESSION_STARTED";  // Unix seconds, may have a fraction; later files are the session's own
inline constexpr const char* kUserHashVariable =
    "VARVE_USAGE_USER_HASH";  // 32 hex digits, or empty for "unknown"; wins over all names
inline constexpr const char* kSwitchVariable = "VARVE_USAGE";      // "off" = the recorder does nothing
inline constexpr const char* kSwitchFile = "etc/varve/usage-off";  // the same, in an image

// The Pythons that the recorder works in.
inline constexpr unsigned kOldestPythonMinor = 8;

// Names are beneath a site folder. All of them belong side by side into each site folder, mode 0644. Python sources,
// the .pth that starts them up to 3.17, and the .start of 3.15 and later.
EmbeddedFiles recorder_files();

// A tree of folders as the search for Pythons sees it: a plain folder, or an image through its index.
struct ListedFolder {
  std::uint64_t identity = 0;      // the same folder under two names has one identity
  std::vector<std::string> names;  // in any order
};
// `path` without leading "/" ("" = the root); symbolic links are followed inside the tree. Absent if there is no such
// folder.
using ListFolder = std::function<std::optional<ListedFolder>(const std::string& path)>;

// True for ".../python3.11/site-packages", ".../python3.12/dist-packages" and ".../python3/dist-packages" of a Python
// the recorder works in.
bool is_site_folder(std::string_view path);

// The site folders of all Pythons of an image: of the usual prefixes (/usr, /usr/local, /opt/*, conda environments,
// pyenv, uv, virtual environments in usual places), and of every prefix that $PATH, $VIRTUAL_ENV and $CONDA_PREFIX of
// `environment` (the image's) name. Without leading "/", sorted; each folder once.
std::vector<std::string> site_folders(const ListFolder& list,
                                      const std::map<std::string, std::string>& environment = {});

// A plain folder taken for the root of a tree: links are followed as if it were "/", so none leads out of it. Throws
// std::system_error if `root` is not a folder.
class RootFolder {
 public:
  explicit RootFolder(std::filesystem::path root);
  std::optional<ListedFolder> list(const std::string& path) const;
  // Where `path` (inside) really is (outside), links resolved. Absent if it is not there.
  std::optional<std::filesystem::path> locate(const std::string& path) const;
  const std::filesystem::path& path() const { return root_; }

 private:
  std::filesystem::path root_;
};

enum class FileState : std::uint8_t {
  kAbsent,
  kCurrent,  // ours, as this program carries it
  kOther,    // ours, of another version
  kForeign,  // not ours: never touched
};
struct SiteState {
  std::string path;  // as given or inside the root, without leading "/"
  FileState state =
      FileState::kAbsent;  // of the whole: foreign if one file is, current if all are, absent if none is there
  std::vector<std::string> foreign;  // names of files that are not ours
  bool changed = false;              // by install() or uninstall()
};

// Where one DIR of the command line leads.
struct Target {
  std::filesystem::path root;        // outside path that the folders are relative to
  std::vector<std::string> folders;  // site folders beneath it
  bool switched_off = false;         // the tree has kSwitchFile
};
// DIR is a site folder, the prefix of a Python or virtual environment, or a root file system. Throws NotFound if it is
// none: the message says what was looked for.
Target find_target(const std::filesystem::path& dir);

// Each file appears whole or not at all, the .pth and .start last; what is there already and current is not written
// again. Nothing is written anywhere if a file that is not the recorder's has one of its names: throws Unsupported.
// Throws std::system_error.
std::vector<SiteState> install(const Target& target);
// Removes what install() made, with the compiled files beside it; foreign files stay.
std::vector<SiteState> uninstall(const Target& target);
std::vector<SiteState> status(const Target& target);

}  // namespace varve::recorder
