#pragma once
// Which starts of an image people wait for: those that are worth a start-up pack.
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "analyzer/packages/inventory.h"
#include "analyzer/prune/probe/targets.h"
#include "analyzer/usage/snapshot.h"

namespace varve::prune {

struct LearnedStart {
  enum class What : std::uint8_t { kPython, kKernel, kCommand, kImport };
  What what = What::kImport;
  std::string name;                // what is imported; of programs their command as typed in a shell
  std::vector<std::string> words;  // what is run; absolute program first, or one that the image's PATH has
  bool ends = true;                // false: it may go on until it is killed
  bool before_kernels = false;     // their starts begin with what this one reads

  // It did what it should: `exit_status` as a shell counts, `out` what it said.
  bool is_fine(int exit_status, const std::string& out) const;
};

struct LearnOptions {
  const usage::Snapshot* used = nullptr;  // what is imported; null: nobody knows
  std::size_t top = 50;                   // imports at most
  std::chrono::seconds limit{60};         // of a kernel's reply
  bool gpu = false;                       // the sessions have one
};

// The image's Python, its kernels and what starts them, its own command; then imports: those that sessions or notebooks
// do, most sessions first, or without `used` those of the largest distributions; with a GPU behind each what its
// library does there first. Of `targets` as probe_targets() finds them, and what dpkg installed; only what the image's
// first Python imports. Names that cannot be imported are left out.
std::vector<LearnedStart> starts_to_learn(const std::vector<ProbeTarget>& targets, const packages::Inventory& inventory,
                                          const LearnOptions& options);

// A command for people, much as they would type it: one line, printable, without backslashes, cut if it is long.
std::string shell_text(const std::vector<std::string>& words);

}  // namespace varve::prune
