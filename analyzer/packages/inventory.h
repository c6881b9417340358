#pragma once
// What is installed in an image: distributions of pip, conda and dpkg, what they own, import, need and weigh. Made
// without running anything.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/packages/module_index.h"
#include "analyzer/python/path_file.h"
#include "analyzer/python/requirement.h"
#include "core/base/digest.h"
#include "core/index/file_source.h"

namespace varve::packages {

enum class Source : std::uint8_t { kPip, kEgg, kConda, kDpkg };
std::string_view source_name(Source source);  // "pip" "egg" "conda" "dpkg"

struct ConsoleScript {
  std::string name;    // "jupyter"
  std::string target;  // "jupyter_core.command:main"
};

struct Need {
  Source from = Source::kPip;  // who says so: Python metadata, or conda and dpkg (then only the name of `requirement`
                               // is filled, and its text)
  python::Requirement requirement;
  bool applies = false;             // its marker holds on the image's own Python and platform, without extras
  std::vector<std::string> extras;  // the extras of this distribution for which it applies
  std::string satisfied_by;         // version in the image; "" = missing
  bool compatible = true;           // that version is one that the requirement allows; true where it is missing
};

struct Distribution {
  std::string name;        // as its metadata writes it
  std::string normalized;  // PEP 503
  std::string version;
  std::string
      package;  // the conda or Debian package that it came as, where that has another name: "pytorch", "python3-numpy"
  std::string package_version;  // of `package`, or of the conda package of the same name: "2.1.0-py311_0" is not said,
                                // "2.1.0" is
  std::string summary;          // one line; "" = not said
  Source source = Source::kPip;
  std::string record;      // path of its dist-info, egg-info, conda-meta file; for dpkg "var/lib/dpkg/status"
  std::string site;        // the folder it is installed into, "" for dpkg and conda without Python
  std::string installer;   // INSTALLER file: "pip" "uv" "conda" …; "" = unknown
  bool requested = false;  // REQUESTED file: somebody asked for it by name
  bool editable = false;
  std::string vendored_by;          // normalised name of the outer distribution; "" = stands for itself
  std::uint64_t files = 0;          // it owns, shared ones included
  std::uint64_t bytes = 0;          // content of these
  std::uint64_t shared_files = 0;   // owned by others too
  std::uint64_t missing_files = 0;  // recorded and not there; bytecode is not looked for
  std::uint64_t changed_files = 0;  // there with another size than recorded: somebody wrote over them
  std::uint64_t compressed_bytes =
      0;  // its share of the blobs, shared paths divided between their owners; 0 for a plain folder
  std::vector<std::uint32_t> layers;       // where its files lie, ascending; empty for a plain folder
  std::vector<std::uint64_t> layer_bytes;  // its share of the blob of each of `layers`; their sum is compressed_bytes
  std::vector<std::string> imports;        // shortest dotted names that are its own: "numpy", "google.cloud.storage"
  std::vector<std::string> top_level;      // as importlib.metadata.packages_distributions() of the image's own Python
                                           // counts it (its rules changed in 3.11 and 3.12)
  std::vector<Need> needs;
  std::vector<ConsoleScript> scripts;
  std::vector<std::string> entry_point_groups;
  bool gpu = false;  // a CUDA library itself, or needs one, or carries a GPU binary
};

// Bytes that do no good: of lower layers and seen by nobody, or metadata of what is no longer there.
struct Waste {
  // kDuplicated: replaced by the very same content. kStaleMetadata: visible, the record of a version that another one
  // has overwritten.
  enum class Why : std::uint8_t { kReplaced, kDeleted, kDuplicated, kStaleMetadata };
  Why why = Why::kReplaced;
  std::uint32_t layer = 0;     // where the wasted bytes lie
  std::uint32_t by_layer = 0;  // the layer that replaced, deleted or repeated them
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t compressed_bytes = 0;
  std::string example;  // the largest such path
};

std::string_view why_name(Waste::Why why);  // "replaced" "deleted" "duplicated" "stale-metadata"

struct LayerSummary {
  Digest digest;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t stream_bytes = 0;
  std::string created_by;
  std::uint64_t owned_bytes = 0;    // visible content that a distribution owns
  std::uint64_t unowned_bytes = 0;  // visible content that none owns
  std::uint64_t wasted_bytes = 0;
};

struct UnownedFolder {
  std::string path;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

// One Python that the image has; most have one, or Debian's beside a newer one.
struct Interpreter {
  std::string executable;           // path in the image
  std::string version;              // "3.11.2"; "3.11" where the patch level is not to be found
  std::vector<std::string> sites;   // in sys.path order
  python::Environment environment;  // for markers
};

struct Inventory {
  std::optional<Digest> image;              // absent for a plain folder
  std::vector<Interpreter> interpreters;    // the one that `python3` on the image's PATH means comes first
  std::vector<Distribution> distributions;  // by normalised name, then record
  std::vector<LayerSummary> layers;
  std::vector<Waste> waste;
  std::vector<UnownedFolder> unowned;  // largest first
  std::uint64_t unowned_files = 0, unowned_bytes = 0;
  ModuleIndex<std::uint32_t> modules;  // owners are indexes into `distributions`
  std::map<std::string, std::vector<std::uint32_t>>
      path_owners;  // shortest path prefixes ("a/b/" a folder, "a/b" a file) -> distributions;
                    // programs, which lie in a folder "bin", one by one
  std::map<std::string, python::PathFile> path_files;  // .pth files, by path
  std::vector<std::string> problems;                   // records that could not be read: one line each, naming the file

  // Indexes into `distributions`; empty if nobody owns it. Several where distributions share it.
  const std::vector<std::uint32_t>& owners_of_path(std::string_view path) const;  // without leading "/"
};

// How many packages an image has, wherever that is said: each that stands for itself, once by name and source. A copy
// inside of another package is a part of that one, and a second record of the same name (of another folder, or version)
// is no second package; what pip and dpkg both have are two.
std::size_t count_packages(const Inventory& inventory);
// Of these indexes into `distributions`.
std::size_t count_packages(const Inventory& inventory, std::span<const std::uint32_t> of);

// "aws" of "usr/local/bin/aws": what a command of that name may run. "" for a path that is no program's.
std::string_view program_of_path(std::string_view path);

// Throws what the source throws, and Unsupported beyond limits; a broken record is a problem, not an error.
Inventory read_inventory(const index::FileSource& files);

// What is wrong with what is installed: a superset of `pip check`.
struct Finding {
  std::string distribution;  // its name
  std::string text;          // "needs numpy>=2 on this image; there is 1.26.4"
};
std::vector<Finding> check_inventory(const Inventory& inventory);

}  // namespace varve::packages
