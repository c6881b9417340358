#include "analyzer/prune/gpu_code.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <set>

#include "analyzer/packages/cuda_architectures.h"
#include "analyzer/report/text.h"
#include "core/base/errors.h"
#include "core/base/text/image_path.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/units.h"

namespace varve::prune {
namespace {

constexpr std::uint64_t kPaddingBytes = 256;           // between entries: a container's header, and what aligns it
constexpr std::size_t kMaxKeptRuns = 2'000'000;        // of one file while it is read
constexpr std::uint64_t kReadAheadBytes = 8ull << 20;  // a span is not fetched again for each header in it
constexpr std::array<std::string_view, 3> kCompilers{"libnvrtc", "libnvJitLink", "libnvptxcompiler"};

// Sorted, what overlaps or has no more than `gap` between it made one.
void unite(std::vector<ByteRange>& ranges, std::uint64_t gap) {
  std::ranges::sort(ranges, {}, [](const ByteRange& range) { return std::pair(range.offset, range.length); });
  std::size_t kept = 0;
  for (const auto& range : ranges) {
    if (kept != 0 && range.offset <= ranges[kept - 1].end() + gap) {
      auto& last = ranges[kept - 1];
      last.length = std::max(last.end(), range.end()) - last.offset;
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
}

// What of `from` none of `taken` has; both in order.
std::vector<ByteRange> without(const std::vector<ByteRange>& from, const std::vector<ByteRange>& taken) {
  std::vector<ByteRange> left;
  auto next = taken.begin();
  for (const auto& range : from) {
    auto at = range.offset;
    while (next != taken.end() && next->end() <= at) ++next;
    for (auto hot = next; hot != taken.end() && hot->offset < range.end(); ++hot) {
      if (hot->offset > at) left.push_back({.offset = at, .length = hot->offset - at});
      at = std::max(at, hot->end());
    }
    if (at < range.end()) left.push_back({.offset = at, .length = range.end() - at});
  }
  return left;
}

void add_run(std::vector<ByteRange>& runs, ByteRange range) {
  if (!runs.empty() && range.offset >= runs.back().offset && range.offset <= runs.back().end() + kPaddingBytes) {
    runs.back().length = std::max(runs.back().end(), range.end()) - runs.back().offset;
  } else {
    runs.push_back(range);
  }
}

bool is_cold(const packages::CodeTarget& target, const cuda::GpuArchitectures& gpus) {
  return target.kind == packages::CodeKind::kMachine && std::ranges::none_of(gpus, [&](std::uint32_t gpu) {
           return cuda::runs_machine_code(gpu, target.number, target.variant);
         });
}

// Hands on `read`, in pieces so large that headers near each other cost one read.
index::RangeReader reading_ahead(const index::RangeReader& read, std::uint64_t size) {
  return [&read, size, start = std::uint64_t(0), held = Bytes()](ByteRange wanted) mutable {
    if (wanted.offset < start || wanted.end() > start + held.size()) {
      start = wanted.offset;
      held = read({.offset = start, .length = std::min(size - start, std::max(wanted.length, kReadAheadBytes))});
    }
    return to_bytes(ByteView(held).subspan(wanted.offset - start, wanted.length));
  };
}

bool is_read_for_code(std::string_view path, const index::FlatEntry& file) {
  if (!packages::may_hold_device_code(path, file) || file.size < kLeastColdRangeBytes ||
      file.content_digest == Digest())
    return false;
  const auto name = name_of(path);
  if (std::ranges::any_of(kCompilers, [&](std::string_view compiler) { return name.starts_with(compiler); }))
    return false;
  if (file.elf != nullptr) return file.elf->device_code || file.elf->machine == EM_CUDA;
  return name.ends_with(".a") || name.ends_with(".fatbin");
}

// What is said of one distribution.
struct OwnerShare {
  std::uint64_t files = 0, bytes = 0;
  std::string path;  // of one of them
  std::set<std::string> targets;
};
using Owners = std::map<std::pair<std::string, std::string>, OwnerShare>;  // by normalised name and source

void add_owner(const GpuColdFile& file, const packages::Inventory& inventory, Owners& owners) {
  for (const auto number : inventory.owners_of_path(file.path)) {
    const auto& owner = inventory.distributions[number];
    auto& share = owners[{owner.normalized, std::string(packages::source_name(owner.source))}];
    ++share.files;
    share.bytes += file.cold_bytes();
    share.path = file.path;
    for (const auto& code : file.code)
      if (code.cold) share.targets.insert(code.target);
  }
}

void add_reasons(const Owners& owners, Plan& plan) {
  for (auto& one : plan.verdicts) {
    const auto found = owners.find({one.name, one.source});
    if (found == owners.end()) continue;
    const auto& share = found->second;
    one.reasons.push_back(
        {.kind = "gpu-arch",
         .by = "",
         .text = fmt::format(
             "code for {} is cold: {} in {}", joined({share.targets.begin(), share.targets.end()}),
             human_bytes(share.bytes),
             share.files == 1 ? visible(share.path, 300) : report::count_text(share.files, "file", "files"))});
  }
}

}  // namespace

WantedGpus wanted_gpus(const std::vector<std::string>& asked, const std::map<std::string, std::uint64_t>& gpu_models) {
  WantedGpus wanted;
  for (const auto& name : asked) {
    if (name != "sessions") {
      const auto found = cuda::gpu_architecture_named(name);
      if (!found)
        fail<UsageError>("--gpu-arch: \"{}\" is no architecture that is known here: sessions, {}", visible(name, 60),
                         cuda::names_of(cuda::known_gpu_architectures()));
      wanted.architectures.insert(*found);
      continue;
    }
    if (gpu_models.empty())
      throw UsageError(
          "--gpu-arch sessions: no session of the window reported a GPU; name architectures (sm_80,sm_90)");
    for (const auto& [model, sessions] : gpu_models) {
      const auto found = cuda::gpu_architecture_of_model(model);
      if (!found)
        fail<UsageError>(
            "--gpu-arch sessions: {} reported \"{}\", whose architecture is not known here; name architectures "
            "instead: {}",
            report::count_text(sessions, "session", "sessions"), visible(model, 80),
            cuda::names_of(cuda::known_gpu_architectures()));
      wanted.architectures.insert(*found);
      wanted.remarks.push_back(fmt::format("Code for {} stays hot because {} reported {}",
                                           cuda::gpu_architecture_name(*found),
                                           report::count_text(sessions, "session", "sessions"), visible(model, 80)));
    }
  }
  if (wanted.architectures.empty()) throw UsageError("--gpu-arch: name at least one architecture, like sm_80");
  return wanted;
}

GpuCodeFound cold_gpu_code(std::uint64_t size, const index::RangeReader& read, const cuda::GpuArchitectures& gpus) {
  std::map<std::string, GpuCodeShare> shares;
  std::vector<ByteRange> cold, hot;
  packages::for_each_code(size, read, [&](const packages::CodeEntry& entry) {
    auto& share = shares[entry.target.name()];
    share.cold = is_cold(entry.target, gpus);
    ++share.entries;
    share.bytes += entry.range.length;
    add_run(share.cold ? cold : hot, entry.range);
    if (cold.size() + hot.size() > kMaxKeptRuns || shares.size() > kMaxGpuTargets)
      fail<Unsupported>("its device code is in more pieces than {}, or for more architectures than {}", kMaxKeptRuns,
                        kMaxGpuTargets);
  });
  GpuCodeFound found;
  for (auto& [name, share] : shares) {
    share.target = name;
    found.code.push_back(std::move(share));
  }
  unite(cold, kPaddingBytes);
  unite(hot, 0);
  found.cold = without(cold, hot);
  return found;
}

void add_gpu_cold(Plan& plan, const index::FileSource& files,
                  const std::vector<std::shared_ptr<const index::LayerMap>>& maps, const packages::Inventory& inventory,
                  const WantedGpus& gpus, const CancelFlag& cancel) {
  Owners owners;
  index::ColdContent cold;
  std::uint64_t unknown_bytes = 0, ranges = 0;
  for (const auto& [path, file] : files.tree().entries) {
    if (!is_read_for_code(path, file)) continue;
    cancel.throw_if_cancelled();
    GpuCodeFound found;
    try {
      files.read_ranges(path, [&](const index::RangeReader& read) {
        found = cold_gpu_code(file.size, reading_ahead(read, file.size), gpus.architectures);
      });
      std::erase_if(found.cold, [](const ByteRange& range) { return range.length < kLeastColdRangeBytes; });
      if (ranges + found.cold.size() > kMaxGpuRanges)
        fail<Unsupported>("with it the plan would have more than {} ranges", kMaxGpuRanges);
    } catch (const Unsupported& error) {
      plan.unsure.push_back(fmt::format("Code for GPUs in {} stays hot: {}", visible(path, 300), error.what()));
      continue;
    }
    for (const auto& share : found.code)
      if (share.target == "other") unknown_bytes += share.bytes;
    if (found.cold.empty()) continue;
    ranges += found.cold.size();
    cold.parts[path] = found.cold;
    plan.gpu_cold.push_back({.path = path,
                             .content = file.content_digest,
                             .bytes = file.size,
                             .code = std::move(found.code),
                             .ranges = std::move(found.cold)});
    add_owner(plan.gpu_cold.back(), inventory, owners);
  }
  index::ColdSummary summary;
  index::mark_cold(files.tree(), maps, cold, &summary);
  plan.gpu_cold_bytes = summary.compressed_bytes;
  plan.parameters["gpu-arch"] = cuda::names_of(gpus.architectures);
  add_reasons(owners, plan);
  plan.unsure.insert(plan.unsure.end(), gpus.remarks.begin(), gpus.remarks.end());
  if (unknown_bytes != 0)
    plan.unsure.push_back(
        fmt::format("Device code of a kind that is not known here stays hot: {}", human_bytes(unknown_bytes)));
}

std::map<std::string, std::vector<ByteRange>, std::less<>> cold_parts(const Plan& plan, const index::FlatTree& tree) {
  const bool archives = std::ranges::any_of(
      plan.verdicts, [](const PlannedDistribution& one) { return one.verdict == Verdict::kArchived; });
  std::map<std::string, std::vector<ByteRange>, std::less<>> parts;
  for (const auto& file : plan.gpu_cold) {
    const auto found = tree.entries.find(file.path);
    if (found == tree.entries.end() && archives) continue;
    if (found == tree.entries.end() || found->second.type != FileType::kRegular ||
        found->second.content_digest != file.content || found->second.size != file.bytes)
      fail<CorruptData>("the plan has cold code in {}, {} of {} bytes, and the image has no such file",
                        visible(file.path, 300), file.content.to_string(), file.bytes);
    parts[file.path] = file.ranges;
  }
  return parts;
}

}  // namespace varve::prune
