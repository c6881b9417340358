#include "fuse/session/limits.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/strings.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMaxControllersBytes = 4096;

struct Controller {
  std::string_view option;
  std::string name;
  const char* file_v1;  // there if the hierarchy of the first version can hold the limit
};

std::vector<Controller> controllers_of(const Limits& limits) {
  std::vector<Controller> wanted;
  if (limits.memory_bytes != 0) wanted.push_back({"--memory", "memory", "memory.limit_in_bytes"});
  if (limits.cpus != 0) wanted.push_back({"--cpus", "cpu", "cpu.cfs_quota_us"});
  if (limits.pids != 0) wanted.push_back({"--pids-limit", "pids", "tasks"});
  return wanted;
}

// The controllers of the second version, if that is what is mounted there.
std::optional<std::vector<std::string>> unified_controllers(const std::filesystem::path& cgroups) {
  const auto text = read_file_if_there(cgroups / "cgroup.controllers", kMaxControllersBytes);
  if (!text) return std::nullopt;
  std::vector<std::string> names;
  for (const auto word : split_words(as_text(*text), " \n")) names.emplace_back(word);
  return names;
}

}  // namespace

void check_limits(const Limits& limits) {
  if (limits.memory_bytes != 0 && limits.memory_bytes < kLeastMemoryBytes)
    fail<UsageError>("--memory: {} bytes are too few, 6MiB is the least (0: no limit)", limits.memory_bytes);
  if (limits.cpus < 0 || (limits.cpus != 0 && limits.cpus < kLeastCpus) || limits.cpus > 1'000'000)
    fail<UsageError>("--cpus {}: 0.01 is the least (0: no limit)", limits.cpus);
  if (limits.pids < 0) fail<UsageError>("--pids-limit {}: write a number of processes (0: no limit)", limits.pids);
}

std::string why_not_held(const Limits& limits, const std::string& runtime, bool is_root,
                         const std::filesystem::path& cgroups) {
  const auto wanted = controllers_of(limits);
  if (wanted.empty()) return "";
  const auto option = wanted.front().option;
  if (runtime == "none") return fmt::format("{}: the runtime `none` makes no control groups", option);
  if (!is_root) return fmt::format("{}: a plain user's sessions have no control groups of their own", option);
  const auto unified = unified_controllers(cgroups);
  for (const auto& controller : wanted) {
    const auto place = unified ? cgroups : cgroups / controller.name;
    const bool there = unified ? std::ranges::find(*unified, controller.name) != unified->end()
                               : std::filesystem::exists(place / controller.file_v1);
    if (!there)
      return fmt::format("{}: this machine has no controller '{}' in {}", controller.option, controller.name,
                         cgroups.string());
    if (::access(place.c_str(), W_OK) != 0)
      return fmt::format("{}: no control groups can be made in {}", controller.option, place.string());
  }
  return "";
}

bool counts_swap(const std::filesystem::path& cgroups) {
  // Of the second version the file is in every group but the first, and runtimes pass over a kernel without it.
  return std::filesystem::exists(cgroups / "cgroup.controllers") ||
         std::filesystem::exists(cgroups / "memory/memory.memsw.limit_in_bytes");
}

}  // namespace varve::fuse
