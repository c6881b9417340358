#pragma once
// Which files of an image are CUDA, by the rules of images/keep/cuda.toml (names, roots, content, closure). Nothing is run; only the index is read.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/elf/loader.h"
#include "core/index/flat_tree.h"

namespace varve::cuda {

struct DlopenEdge {
  std::string opener;              // glob over base names: "libcudnn_graph.so*"
  std::vector<std::string> opens;  // globs over base names
  enum class Need : std::uint8_t { kRequired, kOptional, kDriver } need = Need::kRequired;
};

struct Rules {
  std::vector<std::string> names;      // R1: globs over base names, and "bin/ptxas" kinds of path ends
  std::vector<std::string> roots;      // R2: globs over paths
  std::vector<DlopenEdge> dlopen;      // R4.2
  std::vector<std::string> by_path;    // data and programs reached by path
  std::vector<std::string> tail;       // R4.5
  std::vector<std::string> config_files;  // byte-equal whatever they hold: ld.so configuration, alternatives
  std::vector<std::string> droppable;  // opt-in only
};

// Throws CorruptData naming the file, the line and what is wrong.
Rules parse_rules(std::string_view toml, std::string_view what);
// images/keep/cuda.toml as it was when Varve was built: the program carries it.
const Rules& built_in_rules();

struct Kept {
  std::string rule;  // "R1 libcublas*", "R4 needed by usr/lib/x.so", "R4 dlopened by …", "R4 link of …"
};

struct Selection {
  std::map<std::string, Kept, std::less<>> files;  // paths of the tree: files and links
  std::vector<std::string> missing;                // required dlopen edges that the image does not have: reported, not invented
};
// The tree must have ELF facts.
Selection select_cuda(const index::FlatTree& tree, const elf::Loader& loader, const Rules& rules);

}  // namespace varve::cuda
