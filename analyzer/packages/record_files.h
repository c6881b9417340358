#pragma once
// Which files of an image the inventory reads: known by their names alone, so that one pass over a layer can keep them
// as they stream by.
#include <cstdint>
#include <optional>
#include <string_view>

namespace varve::packages {

enum class RecordFile : std::uint8_t {
  kMetadata,        // *.dist-info/METADATA, *.egg-info/PKG-INFO, EGG-INFO/PKG-INFO
  kSingleEggInfo,   // *.egg-info, a file
  kRecord,          // RECORD
  kInstalledFiles,  // installed-files.txt
  kSources,         // SOURCES.txt
  kTopLevel,        // top_level.txt
  kNamespaces,      // namespace_packages.txt
  kRequires,        // requires.txt
  kEntryPoints,     // entry_points.txt
  kInstaller,       // INSTALLER
  kDirectUrl,       // direct_url.json
  kConda,           // conda-meta/*.json
  kDpkgStatus,      // var/lib/dpkg/status
  kDpkgStatusD,     // var/lib/dpkg/status.d/NAME
  kDpkgMd5Sums,     // var/lib/dpkg/status.d/NAME.md5sums
  kDpkgList,        // var/lib/dpkg/info/*.list
  kDpkgDiversions,  // var/lib/dpkg/diversions
  kPathFile,        // *.pth in a site folder
  kEggLink,         // *.egg-link
  kFinder,          // __editable___*_finder.py and its like
  kVenv,            // pyvenv.cfg
  kPatchLevel,      // include/python3.11/patchlevel.h
  kPackageInit,     // __init__.py up to three levels below a site folder: it may make a namespace
};

// `path` without leading "/", hostile or not. Absent: the inventory does not read it.
std::optional<RecordFile> record_file(std::string_view path);
inline bool is_record_file(std::string_view path) { return record_file(path).has_value(); }

// What describes a Python distribution and is none of its code: all of a dist-info, egg-info or EGG-INFO folder, and an
// egg-info that is a file. Python reads those of all distributions to find entry points, whoever's they are.
bool is_python_metadata(std::string_view path);

// "…/site-packages", "…/dist-packages": folders that are named as site folders are.
bool is_site_folder_name(std::string_view folder);

}  // namespace varve::packages
