#pragma once
// What a session may have of the machine, held by the control groups that an OCI runtime makes for it.
#include <cstdint>
#include <filesystem>
#include <string>

namespace varve::fuse {

// A value; 0 is no limit.
struct Limits {
  std::uint64_t memory_bytes = 0;  // of RAM, and of swap none besides where the kernel counts that
  double cpus = 0;                 // processors' worth of time
  std::int64_t pids = 0;           // processes and threads
  bool must_hold = true;           // false: a session that cannot be held by them runs without

  bool any() const { return memory_bytes != 0 || cpus != 0 || pids != 0; }
  bool operator==(const Limits&) const = default;
};

inline constexpr std::uint64_t kLeastMemoryBytes = 6 << 20;  // less does not start a shell
inline constexpr double kLeastCpus = 0.01;                   // the kernel takes no quota below a millisecond

// Throws UsageError for amounts that no machine can hold, naming the option.
void check_limits(const Limits& limits);

inline constexpr const char* kCgroups = "/sys/fs/cgroup";

// Why these limits would not hold for sessions of this runtime and user; "" if they do. `cgroups`: where control groups
// of either version are mounted.
std::string why_not_held(const Limits& limits, const std::string& runtime, bool is_root,
                         const std::filesystem::path& cgroups = kCgroups);
// Whether the kernel counts swap, so that a limit of memory can be one of both.
bool counts_swap(const std::filesystem::path& cgroups = kCgroups);

}  // namespace varve::fuse
