#pragma once
// What an image's things do when each is started alone, in a session without network: found out once per image by
// `varve prune probe` and kept in the usage database. docs/formats/usage-database.md.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"

namespace varve::usage {

// What was started.
enum class ProbedKind : std::uint8_t {
  kImport,           // `import NAME`, of each name that a distribution can be imported by
  kEntryPoint,       // the module of entry points other than scripts; the name is "GROUP:NAME"
  kScript,           // a console script with --help
  kKernel,           // a kernelspec, to its first reply
  kPython,           // a start of Python that does nothing; the name is its path
  kCommand,          // what the image's config starts, to its first output
  kServerExtension,  // that jupyter lists as enabled; nothing of it is started
  kLabExtension      // the same
};
std::string_view probed_kind_name(ProbedKind kind);  // "import" "entry-point" "script" "kernel" "python" "command" …
// Throws CorruptData for a name that is none.
ProbedKind probed_kind(std::string_view name);

// Names and distributions are such that the image's inventory or its tree has them; `detail` is the image's own words.
struct ProbedItem {
  ProbedKind kind = ProbedKind::kImport;
  std::string name;
  std::string distribution;  // normalised name of the one that it belongs to; "" = none or not one alone
  // "ok", the class of an exception ("ImportError"), "exit 2", "signal 11", "time limit", "not reached", "runs" (killed
  // while it ran, nothing was said yet), "no reply".
  std::string outcome;
  std::string detail;  // the exception's words; of kPython all of its standard error. At most kMaxProbeDetail bytes
  // Of kImport: modules that it looked for and nobody had, though something of their name is installed; ascending. What
  // the gate "imports" compares. Absent: not known.
  std::optional<std::vector<std::string>> missed = {};
  bool operator==(const ProbedItem&) const = default;
};
inline constexpr std::size_t kMaxProbeDetail = 4096;

struct ProbeEdge {
  // kLoads: an import or entry point loaded modules of a distribution or opened files of it. kTries: it looked for one
  // that is installed, and did without. kRuns: a program (script, kernel, Python, command) loaded something of it.
  enum class Kind : std::uint8_t { kLoads, kTries, kRuns };
  Kind kind = Kind::kLoads;
  std::uint32_t item = 0;       // index into Probe::items: what was started
  std::string to;               // the first module that was loaded or looked for; "" = only files were opened
  std::string to_distribution;  // normalised; never that of the item itself
  bool operator==(const ProbeEdge&) const = default;
};
std::string_view probe_edge_name(ProbeEdge::Kind kind);  // "loads" "tries" "runs"
void sort_edges(std::vector<ProbeEdge>& edges);          // as Probe has them

struct Probe {
  Digest image;
  std::int32_t day = 0;           // on which it was made
  std::vector<ProbedItem> items;  // by kind, then name
  std::vector<ProbeEdge> edges;   // by item, kind, then distribution; each once
  bool operator==(const Probe&) const = default;
};

}  // namespace varve::usage
