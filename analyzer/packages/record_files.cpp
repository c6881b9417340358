#include "analyzer/packages/record_files.h"

#include <algorithm>
#include <array>
#include <utility>

#include "analyzer/packages/file_table.h"
#include "analyzer/python/path_file.h"
#include "core/base/text/image_path.h"

namespace varve::packages {
namespace {

constexpr int kInitLevels = 3;

// Files of a dist-info, egg-info or EGG-INFO folder.
constexpr std::array<std::pair<std::string_view, RecordFile>, 10> kInFolder{{
    {"METADATA", RecordFile::kMetadata},
    {"PKG-INFO", RecordFile::kMetadata},
    {"RECORD", RecordFile::kRecord},
    {"installed-files.txt", RecordFile::kInstalledFiles},
    {"SOURCES.txt", RecordFile::kSources},
    {"top_level.txt", RecordFile::kTopLevel},
    {"namespace_packages.txt", RecordFile::kNamespaces},
    {"requires.txt", RecordFile::kRequires},
    {"entry_points.txt", RecordFile::kEntryPoints},
    {"INSTALLER", RecordFile::kInstaller},
}};

std::optional<RecordFile> dpkg_file(std::string_view below) {
  if (below == "status") return RecordFile::kDpkgStatus;
  if (below == "diversions") return RecordFile::kDpkgDiversions;
  if (below.starts_with("info/"))
    return below.ends_with(".list") && below.find('/', 5) == std::string_view::npos
               ? std::optional(RecordFile::kDpkgList)
               : std::nullopt;
  if (!below.starts_with("status.d/") || below.find('/', 9) != std::string_view::npos) return std::nullopt;
  return below.ends_with(".md5sums") ? RecordFile::kDpkgMd5Sums : RecordFile::kDpkgStatusD;
}

bool is_early_init(std::string_view folder) {
  for (int level = 0; level < kInitLevels && !folder.empty(); ++level) {
    folder = parent_of(folder);
    if (is_site_folder_name(folder)) return true;
  }
  return false;
}

}  // namespace

bool is_site_folder_name(std::string_view folder) {
  const auto name = name_of(folder);
  return name == "site-packages" || name == "dist-packages";
}

bool is_python_metadata(std::string_view path) {
  for (auto at = path; !at.empty(); at = parent_of(at)) {
    const auto name = name_of(at);
    if (name.ends_with(".dist-info") || name.ends_with(".egg-info") || name == "EGG-INFO") return true;
  }
  return false;
}

std::optional<RecordFile> record_file(std::string_view path) {
  constexpr std::string_view kDpkg = "var/lib/dpkg/";
  if (path.starts_with(kDpkg)) return dpkg_file(path.substr(kDpkg.size()));
  const auto name = name_of(path);
  const auto folder = parent_of(path);
  const auto folder_name = name_of(folder);
  if (folder_name.ends_with(".dist-info") || folder_name.ends_with(".egg-info") || folder_name == "EGG-INFO") {
    if (name == "direct_url.json") return RecordFile::kDirectUrl;
    const auto found = std::ranges::find(kInFolder, name, &std::pair<std::string_view, RecordFile>::first);
    return found == kInFolder.end() ? std::nullopt : std::optional(found->second);
  }
  if (folder_name == "conda-meta") return name.ends_with(".json") ? std::optional(RecordFile::kConda) : std::nullopt;
  if (name.ends_with(".egg-info")) return RecordFile::kSingleEggInfo;
  if (name.ends_with(".egg-link")) return RecordFile::kEggLink;
  if (name.ends_with(".pth")) return is_site_folder_name(folder) ? std::optional(RecordFile::kPathFile) : std::nullopt;
  if (name == "pyvenv.cfg") return RecordFile::kVenv;
  if (name == "patchlevel.h")
    return folder_name.starts_with("python") ? std::optional(RecordFile::kPatchLevel) : std::nullopt;
  if (name == "__init__.py") return is_early_init(folder) ? std::optional(RecordFile::kPackageInit) : std::nullopt;
  if (name.ends_with(".py") && is_site_folder_name(folder) &&
      python::is_editable_finder_name(name.substr(0, name.size() - 3)))
    return RecordFile::kFinder;
  return std::nullopt;
}

}  // namespace varve::packages
