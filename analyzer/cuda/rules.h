#pragma once
// Which files of an image are CUDA, by the rules of images/keep/cuda.toml (names, roots, content, closure). Nothing is
// run; only the index is read. docs/design/cuda.md.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/elf/loader.h"
#include "core/base/digest.h"
#include "core/index/merge/flat_tree.h"

namespace varve::cuda {

inline constexpr std::size_t kMaxPatterns = 10'000;  // of a rule file, {a,b} written out

struct DlopenEdge {
  std::string opener;              // pattern over base names: "libcudnn_graph.so*"
  std::vector<std::string> opens;  // patterns over base names; "$MAJOR" is the first number behind ".so." of the opener
  enum class Need : std::uint8_t { kRequired, kOptional, kDriver } need = Need::kRequired;
  std::vector<std::string> when;  // patterns over base names: counts only in images that have one; empty = in all
};

// Paths that are kept only where something is there that needs them.
struct ConditionalTail {
  std::vector<std::string> if_present;  // patterns over paths
  std::vector<std::string> paths;
};

// Patterns are those of core/base/text/glob.h and {a,b}, [ab]; a pattern of `names` and `tail` without "/" is over base
// names, one with "/" over ends of paths (names) or whole paths.
struct Rules {
  std::vector<std::string> names;    // R1
  std::vector<std::string> roots;    // R2: with all that is below
  std::vector<DlopenEdge> dlopen;    // R4.2
  std::vector<std::string> by_path;  // data and programs reached by path
  std::vector<std::string> tail;     // R4.5
  std::vector<ConditionalTail> tail_if;
  std::vector<std::string> config_files;  // byte-equal whatever they hold: ld.so configuration, alternatives
  std::vector<std::string> droppable;     // opt-in only
  Digest digest;                          // of the rule file
};

// Throws CorruptData naming the file, the line and what is wrong.
Rules parse_rules(std::string_view toml, std::string_view what);
// images/keep/cuda.toml as it was when Varve was built: the program carries it.
const Rules& built_in_rules();
std::string_view built_in_rules_text();

struct Kept {
  std::string rule;  // "R1 libcublas.so*", "R3 device code", "R4 needed by usr/lib/x.so", "R4 dlopened by …", "R4 link
                     // of …", "config etc/ld.so.conf"
};

struct Selection {
  std::map<std::string, Kept, std::less<>> files;  // paths of the tree: files, links and the folders of roots
  std::vector<std::string> missing;  // required dlopen edges that the image does not have: reported, not invented
  // Real path of each kept ELF file with needs -> what the loader finds for them, as manifests record it.
  std::map<std::string, std::vector<elf::Resolution>, std::less<>> needs;
  // Anything by R1, R2 or R3; without, there is no CUDA and only configuration is kept.
  bool has_cuda = false;
};
// The tree must have ELF facts.
Selection select_cuda(const index::FlatTree& tree, const elf::Loader& loader, const Rules& rules);

// Paths of the tree that `droppable` names and `names` does not hold: for reports, and for who asks to drop them.
std::vector<std::string> droppable_paths(const index::FlatTree& tree, const Rules& rules);

}  // namespace varve::cuda
