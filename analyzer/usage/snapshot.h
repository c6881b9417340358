#pragma once
// What the usage database knows about one window of time: plain data, read in one go, from which reports and plans are
// made.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/digest.h"

namespace varve::usage {

// A session's accelerator counts as idle when no cell ran for longer than this.
inline constexpr std::uint64_t kGpuIdleThresholdSeconds = 600;

// Days since 1970-01-01 (UTC), `last` included.
struct DayRange {
  std::int32_t first = 0;
  std::int32_t last = 0;
};

// A count of distinct users. Users are salted per month, so over several months only a range is known: at least the
// best month's, at most the sum.
struct UserCount {
  std::uint64_t at_least = 0;
  std::uint64_t at_most = 0;
};

struct ImageFacts {
  Digest digest;                   // of the image manifest
  std::string label;               // a name people know ("v143"); "" = none
  std::string python;              // "3.11.2"; "" = none or unknown
  bool has_inventory = false;      // its packages are known; else nothing can be said of what it has and nobody uses
  std::uint64_t launched = 0;      // sessions started in the window, as far as anybody counted; >= heard
  std::uint64_t heard = 0;         // sessions whose recorder spoke
  std::uint64_t surplus = 0;       // further ones, of users who had enough that day: only what they used is counted
  std::uint64_t gpu_sessions = 0;  // heard, with an accelerator present
  std::uint64_t gpu_used_sessions = 0;   // heard, and the accelerator was used
  std::uint64_t gpu_unused_seconds = 0;  // lifetime of sessions that had an accelerator and never touched it
  std::uint64_t gpu_idle_seconds = 0;    // with an accelerator present, no cell ran for longer than the idle threshold
  std::uint64_t gpu_incapable_sessions =
      0;  // heard, with an accelerator, that imported or named nothing that can use one
  std::uint64_t gpu_incapable_seconds = 0;  // lifetime of these
  UserCount users;
};

struct LayerFacts {
  Digest image;
  std::uint32_t layer = 0;  // 0 = base
  Digest digest;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t stream_bytes = 0;
  std::string created_by;  // from the image's history; "" = unknown
};

// What one image has of a distribution.
struct PackageFacts {
  Digest image;
  std::string version;
  std::string source;  // "pip" "egg" "conda" "dpkg"
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;             // installed, content only
  std::uint64_t compressed_bytes = 0;  // its share of the layers' blobs
  std::vector<std::uint32_t> layers;   // ascending
  std::vector<std::string> imports;    // dotted names
  std::vector<std::string> required;   // normalised names of what it needs on this image
  bool gpu = false;                    // can use an accelerator: a CUDA library itself, or links or requires one
};

struct DayCount {
  std::int32_t day = 0;
  std::uint64_t sessions = 0;
};

// Evidence about one distribution within the window, over the images asked for.
struct DistributionUse {
  std::string name;                    // normalised (PEP 503)
  std::string display_name;            // as its metadata writes it
  std::vector<PackageFacts> packages;  // one per image that has it; empty = never part of a known image
  std::uint64_t sessions = 0;          // distinct sessions that loaded it, or named it when it was loaded
  std::uint64_t direct = 0;            // of these: the user's own code imported it (run time)
  std::uint64_t transitive_only = 0;   // of these: only other libraries imported it
  std::uint64_t files_only = 0;        // further sessions, that only opened or executed files of it
  std::uint64_t image_copy = 0;        // sessions that loaded the image's copy
  std::uint64_t session_copy = 0;      // sessions that loaded a copy of their own
  std::uint64_t file_sessions = 0;     // sessions in which files of it were opened (mount's evidence), imported or not
  std::uint64_t exec_sessions = 0;     // sessions that executed a program of it
  std::uint64_t static_sessions = 0;   // sessions whose executed cells name it, whatever was loaded
  UserCount users;
  std::int32_t first_used = 0, last_used = 0;  // days, over all time and these images; 0 = never
  std::vector<DayCount> days;                  // days with sessions of any kind, ascending: for trend and charts
  std::uint64_t notebooks = 0;           // distinct scanned notebooks that import it, run a program of it or install it
  std::uint64_t notebooks_optional = 0;  // of these: only inside try or if
  std::vector<std::string>
      shared_with;  // distributions that own some of the same modules: its evidence may be theirs; all are counted
  std::map<std::string, std::uint64_t> importers;  // distribution that imported it -> sessions
  std::map<std::string, std::uint64_t> modules;    // dotted module (at most two parts) -> sessions
};

// Sessions that used it in any way: directly, only through other libraries, by a cell's name only, by its files only.
inline std::uint64_t used_in(const DistributionUse& use) { return use.sessions + use.files_only; }
// Of `sessions`: a cell named what was loaded already, and no code of the user's imported it.
inline std::uint64_t named_only(const DistributionUse& use) {
  const auto imported = use.direct + use.transitive_only;
  return use.sessions - (imported < use.sessions ? imported : use.sessions);
}

struct FailedImport {
  std::string module;  // only names that may be shown: docs/formats/usage-spool.md
  std::uint64_t sessions = 0;
  UserCount users;
  std::int32_t last_day = 0;
  std::string distribution;  // that other images have, or that shares its name; "" = unknown
};

struct Reinstall {
  std::string distribution;
  std::string from, to;  // "" = absent
  std::string why;       // "upgrade" "downgrade" "same" "new" "removed"
  std::uint64_t sessions = 0;
  UserCount users;
};

// A hint found in a scanned notebook; never a verdict.
struct NotebookHint {
  std::string notebook;  // path as scanned
  std::string kind;      // e.g. "loss-kept-with-graph"
  std::string text;
  std::uint32_t cell = 0, line = 0;  // 1-based
};

struct NotebookFacts {
  std::string path;          // as scanned; of duplicates the first in byte order
  std::uint32_t copies = 1;  // with the same code
  std::string language;
  std::vector<std::string> distributions;  // normalised names it imports, directly
  bool imports_gpu_capable = false;
};

struct Snapshot {
  DayRange window;  // as asked for, but whole months where days are gone
  // The window's days before it are known as months only, each told as its first day, without the modules of
  // distributions, `failed`, `reinstalls` and `unresolved`. At most the window's first day: all are known.
  std::int32_t by_day_from = 0;
  std::optional<Digest> image;       // absent: over all images
  std::vector<ImageFacts> images;    // newest first by first day seen
  std::vector<DayCount> heard_days;  // heard sessions per day over these images, ascending; empty = not known by day
  std::vector<LayerFacts> layers;
  std::vector<DistributionUse> distributions;  // by name
  std::vector<FailedImport> failed;            // most sessions first
  std::vector<Reinstall> reinstalls;           // most sessions first
  std::vector<NotebookHint> hints;
  std::vector<NotebookFacts> notebooks;  // those with hints, or GPU facts worth a line: at most kMaxNotebooks
  std::uint64_t notebooks_scanned = 0, notebooks_distinct = 0;
  std::map<std::string, std::uint64_t> gpu_models;  // model -> sessions
  std::map<std::string, std::uint64_t>
      unresolved;                         // module (at most two parts) whose distribution is not known -> sessions
  std::uint64_t hidden_failed_names = 0;  // below the privacy threshold
  std::uint64_t quarantined = 0;          // spool records that could not be read
};

// Every piece of evidence about one name, for `usage explain`.
struct Evidence {
  std::string kind;      // "session" "import-edge" "notebook" "install" "failed" "file" "package" "month"
  std::int32_t day = 0;  // 0 = none
  std::optional<Digest> image;
  std::uint64_t count = 0;  // sessions or cells
  std::string detail;       // "by pandas", "cell 3 line 2 of a.ipynb (optional)", "1.26.4 -> 2.0.1 (upgrade, pip)"
};
struct Explanation {
  std::string asked;                       // as the user wrote it
  std::vector<std::string> distributions;  // normalised names it stands for, in any known image; empty = none
  std::vector<DistributionUse> use;        // one per distribution
  std::vector<FailedImport> failed;
  std::vector<Evidence> evidence;  // newest first, at most kMaxEvidence
  std::vector<ImageFacts> images;
};
inline constexpr std::size_t kMaxEvidence = 10'000;
inline constexpr std::size_t kMaxNotebooks = 10'000;

}  // namespace varve::usage
