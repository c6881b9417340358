#pragma once
// Code for GPUs that nobody has, inside libraries that stay: which ranges of which files an index may mark cold. Not
// one byte of them changes. docs/guide/prune-plan.md.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/cuda/gpu_architectures.h"
#include "analyzer/packages/inventory.h"
#include "analyzer/prune/plan.h"
#include "core/base/threads/cancel.h"
#include "core/index/merge/mark_cold.h"

namespace varve::prune {

// The GPUs that code stays hot for.
struct WantedGpus {
  cuda::GpuArchitectures architectures;  // not empty
  std::vector<std::string> remarks;      // for `unsure`: where they come from, if not from the user
};

// `asked`: names like "sm_80", and "sessions" for what sessions reported. Throws UsageError, naming the known ones, for
// a name that is none, and where sessions reported no GPU or one whose architecture is not known: to leave it out would
// make its code cold.
WantedGpus wanted_gpus(const std::vector<std::string>& asked, const std::map<std::string, std::uint64_t>& gpu_models);

// What of one file is for which GPUs.
struct GpuCodeFound {
  std::vector<GpuCodeShare> code;  // by name
  std::vector<ByteRange> cold;     // in order, not touching
};

// Cold is machine code that none of `gpus` runs. PTX, code for the link step and what is not known stay hot, and so
// does every byte that two entries claim of which one stays. Headers go with their entries: who looks through a
// container for code fetches the spans where they lie. Throws Unsupported for what no real file has.
GpuCodeFound cold_gpu_code(std::uint64_t size, const index::RangeReader& read, const cuda::GpuArchitectures& gpus);

// No span in a library is shorter: what is, is never left out of anything, and not in plans.
inline constexpr std::uint64_t kLeastColdRangeBytes = 16 * 1024;

// Fills `gpu_cold` and `gpu_cold_bytes`, the parameter, a reason for each owner and sentences in `unsure`. Reads the
// files of the image that have device code, but for compilers, which make code for GPUs of other machines too. `files`
// must have ELF facts. Throws what the source throws, and Cancelled.
void add_gpu_cold(Plan& plan, const index::FileSource& files,
                  const std::vector<std::shared_ptr<const index::LayerMap>>& maps, const packages::Inventory& inventory,
                  const WantedGpus& gpus, const CancelFlag& cancel);

// The ranges that the plan has, of the files of a tree. What it archives may be gone. Throws CorruptData where a file
// is not what was planned.
std::map<std::string, std::vector<ByteRange>, std::less<>> cold_parts(const Plan& plan, const index::FlatTree& tree);

}  // namespace varve::prune
