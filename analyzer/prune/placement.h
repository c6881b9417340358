#pragma once
// Which files of an image belong together in its layers, and how warm they are: by who owns them, by the plan and by
// what is CUDA. docs/design/packing.md.
#include <cstdint>

#include "analyzer/cuda/rules.h"
#include "analyzer/packages/inventory.h"
#include "analyzer/prune/plan.h"
#include "core/index/merge/flat_tree.h"
#include "core/index/merge/placement.h"

namespace varve::prune {

// From this size on a Debian package, a folder that no package owns, and a file that none owns is a component of its
// own; smaller ones are part of the system.
inline constexpr std::uint64_t kOwnComponentBytes = 16u << 20;

// Every file and link of the tree comes into one component at most; what is in none is the system. A plan changes
// tiers; who is in which component it changes only for files that several own, and for small Debian packages that it
// makes cold: layers of another plan can be used again.
// - "pip:numpy" (also "egg:", "conda:"): what a distribution owns, copies in several sites together, and what it
// carries vendored. Several owners: the hottest of them.
// - "dpkg:texlive": large ones. Tier kSystem, or what the plan says of it when that is not hot.
// - "cuda:nvidia-cudnn-cu13", "cuda:usr/local/cuda-12.4": what is CUDA by name or root (R1, R2), by distribution or
// folder; a distribution that is so for half its bytes or more is so as a whole.
//   Tier kCuda, or what the plan says of the distribution when that is not hot.
// - "folder:root/nltk_data", "file:usr/local/bin/node": large ones that nobody owns. Tier kSystem: who uses them is not
// known. All names of an inode come into the same component, the hottest of theirs. Tiers of distributions: of the
// plan, archived ones as cold (who archives fills `removed`); without a plan all are hot. `plan` and `cuda` may be
// null.
index::Placement make_placement(const index::FlatTree& tree, const packages::Inventory& inventory, const Plan* plan,
                                const cuda::Selection* cuda);

}  // namespace varve::prune
