#pragma once
// What changed between two images: distributions, files, bytes, configuration, and what of that a notebook would
// notice. Read from the indexes alone; nothing of the images is run.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/scan.h"
#include "analyzer/packages/inventory.h"
#include "core/index/merge/flat_tree.h"
#include "core/oci/image.h"

namespace varve::compare {

// One of the two. What it points to must outlive the comparison.
struct Side {
  const oci::Image& image;
  const index::FlatTree& tree;
  const packages::Inventory& inventory;
};

// ---- distributions

enum class PackageChange : std::uint8_t { kAdded, kRemoved, kChanged, kRebuilt };
std::string_view package_change_name(PackageChange change);  // "added" "removed" "changed" "rebuilt"

struct ComparedPackage {
  std::string name;  // normalised
  packages::Source source = packages::Source::kPip;
  PackageChange change =
      PackageChange::kChanged;             // kRebuilt: of the same version, and files that it owns have another content
  std::vector<std::string> before, after;  // its versions; several where it is installed into several places
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::uint64_t changed_files =
      0;  // that it owns, added, removed or of another content, by path below its site folder; bytecode is not counted
  bool gpu = false;
  bool python = false;  // it is a distribution of Python, whoever installed it
};

struct PackageComparison {
  std::vector<ComparedPackage> changed;                 // by name, then source
  std::map<packages::Source, std::uint64_t> unchanged;  // how many
};

// What breaks most comes first: gone, another major version, other versions, new, rebuilt; the largest first within
// each, equals as they were.
std::vector<ComparedPackage> breaking_first(std::vector<ComparedPackage> packages);

// ---- files

enum class FileChange : std::uint8_t { kAdded, kRemoved, kContent, kAttributes, kTime };
std::string_view file_change_name(FileChange change);  // "added" "removed" "content" "attributes" "time"

struct ComparedFile {
  std::string path;
  FileChange change = FileChange::kContent;
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::string detail;  // of attributes: "mode 0644 instead of 0755"; of content where the type differs: "a link instead
                       // of a file"
};

struct FileCount {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;  // of A for what is removed, else of B; hard links once
};

struct FileComparison {
  std::uint64_t unchanged = 0;  // files, links and devices; folders are counted nowhere, but for their attributes
  std::map<FileChange, FileCount> counts;
  std::vector<ComparedFile> changed;       // by path
  std::uint64_t content_bytes = 0;         // of B's files, hard links once
  std::uint64_t shared_content_bytes = 0;  // of these, in files whose content is in some file of A, whatever its name
  // Of these, in bytecode that is not: of a source that A has unchanged at the same path, so that at most the times in
  // it differ.
  std::uint64_t bytecode_bytes = 0;
};

// ---- layers, configuration, Python, CUDA

struct LayerComparison {
  std::uint64_t layers_before = 0, layers_after = 0;
  std::uint64_t reused = 0;        // of B's layers, that are A's too: the same blobs
  std::uint64_t recompressed = 0;  // of B's layers: other blobs, and a stream that A has
  std::uint64_t shared_bytes = 0;  // of blobs that both have, each once
  std::uint64_t new_bytes = 0;     // of blobs that only B has
  std::uint64_t gone_bytes = 0;    // of blobs that only A has
};

struct ConfigChange {
  std::string field;          // "Env PATH", "Cmd", "Labels maintainer", "architecture"
  std::string before, after;  // text, or JSON for what is no text; "" = not there
};

struct PythonVersions {
  std::vector<std::string> before, after;  // versions of the interpreters, that of `python3` first
};

// A library of CUDA by the name that programs ask for it, without the version: "libcudnn".
struct CudaLibrary {
  std::string name;
  std::vector<std::string> before, after;  // versions in file names: "9", "12.4.127"
  bool content_changed = false;
};

struct Comparison {
  PackageComparison packages;
  FileComparison files;
  LayerComparison layers;
  std::vector<ConfigChange> config;  // by field
  PythonVersions python;
  std::vector<CudaLibrary> cuda;  // those that differ, by name
  bool identical() const;         // no difference but time stamps: of files, and of the config's own
};

// Throws CorruptData where a config is no JSON.
Comparison compare_images(const Side& before, const Side& after);

// ---- a notebook

// A name that a notebook imports and that B does not give, and where it is imported first.
struct BrokenImport {
  std::string name;  // dotted, as written
  std::string kind;  // "import" "optional" …
  std::string path;  // of the notebook, as scanned
  std::uint32_t cell = 0, line = 0;
  std::uint64_t files = 1;  // of those scanned: import it
  std::string why;          // "belonged to xgboost 2.0, which is gone"
};

struct NotebookComparison {
  std::vector<BrokenImport> lost;           // A gives it and B does not: these break
  std::vector<BrokenImport> never;          // neither gives it
  std::vector<BrokenImport> gained;         // B gives it and A did not
  std::vector<ComparedPackage> direct;      // changed, and imported by name
  std::vector<ComparedPackage> transitive;  // changed, and needed by those
  std::uint64_t unchanged_direct = 0;
  std::uint64_t unchanged_transitive = 0;
  std::vector<std::string> errors;    // what could not be read
  std::vector<std::string> warnings;  // what was read, but not as it is written
};

NotebookComparison compare_for_notebook(const notebooks::ScanResult& scan, const Side& before, const Side& after,
                                        const Comparison& comparison);

}  // namespace varve::compare
