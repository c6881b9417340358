#pragma once
// What the records of an image say, before anything is joined or owned.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analyzer/packages/file_table.h"
#include "analyzer/packages/inventory.h"
#include "analyzer/python/conda_meta.h"
#include "analyzer/python/core_metadata.h"
#include "analyzer/python/dpkg.h"
#include "analyzer/python/entry_points.h"
#include "analyzer/python/install_record.h"
#include "analyzer/python/module_file.h"
#include "analyzer/python/path_file.h"

namespace varve::packages::internal {

enum class RecordKind : std::uint8_t { kDistInfo, kEggInfoFolder, kEggInfoFile, kEgg, kConda, kDpkg };

inline bool is_python(RecordKind kind) { return kind != RecordKind::kConda && kind != RecordKind::kDpkg; }

// One record: what a dist-info, egg-info, conda-meta file or dpkg stanza says.
struct Record {
  RecordKind kind = RecordKind::kDistInfo;
  std::string path;  // the folder or file; dpkg: the status file
  std::string site;  // the folder that holds it; an egg: itself; conda: the prefix; dpkg: ""
  std::string name;  // as written
  std::string normalized;
  std::string version;
  std::string python;       // "3.11" where the record's file name says it
  std::uint32_t layer = 0;  // of its main file
  bool readable = false;    // its main file was there and said a name

  std::vector<FileId> claims;  // content it installed; ascending, once each
  bool has_list = false;       // it lists its files
  std::uint64_t missing = 0;   // listed and not there, bytecode left out
  std::uint64_t changed = 0;   // there, with another size than listed

  std::optional<python::CoreMetadata> metadata;
  std::vector<python::Requirement> requires_text;  // of requires.txt, where the metadata has none
  std::vector<std::string> extras;                 // as written
  std::vector<std::string> unreadable_requires;
  python::EntryPoints entry_points;
  std::vector<std::string> declared_top_level;  // top_level.txt
  std::set<std::string> sources_311;            // first parts of listed *.py, as importlib.metadata 3.11 infers names
  std::set<std::string> sources_312;            // of all files, as 3.12 does
  std::vector<std::string> namespaces;          // namespace_packages.txt
  std::string installer;
  bool requested = false;
  std::optional<python::DirectUrl> direct_url;
  std::set<std::string> finder_modules;  // listed generated modules of an editable install, paths in the image
  std::set<std::string> path_files;      // listed .pth files, paths in the image
  bool editable = false;
  std::map<std::string, std::string> editable_modules;  // dotted -> path in the image

  // conda and dpkg
  std::vector<std::string> depends;  // conda: match specs
  std::vector<python::DpkgDependency> dpkg_depends;
  std::vector<std::string> provides;  // dpkg: names
};

struct Records {
  std::vector<Record> records;
  std::map<std::string, python::PathFile> path_files;       // by path
  std::map<std::string, std::string> egg_links;             // path -> folder as written
  std::map<std::string, python::EditableFinder> finders;    // by path
  std::map<std::string, python::VirtualEnvironment> venvs;  // by prefix
  std::map<std::string, std::string> patch_levels;          // path of patchlevel.h -> "3.11.2"
  std::vector<std::string> problems;
};

inline constexpr std::size_t kMaxProblems = 1000;  // further ones are counted only

// Reads all records of the source in one go. What cannot be read becomes a problem.
Records read_records(const index::FileSource& source, const FileTable& table);

}  // namespace varve::packages::internal
