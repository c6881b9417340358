#pragma once
// Mounts that nobody uses any more and that stay for a while, so that the next session finds its pages: which of them
// are to go, and whether the machine wants its memory back.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace varve::fuse {

using IdleTime = std::chrono::steady_clock::time_point;

struct IdleMount {
  std::filesystem::path dir;
  IdleTime since;  // its last use ended then
};

// Each costs the daemon its layer maps, and in fuse mode a connection.
inline constexpr std::size_t kMaxIdleMounts = 16;
inline constexpr std::chrono::seconds kIdleLook{1};  // how often they are looked at

// Those that are to go now, the longest idle first: whose time is over, those above kMaxIdleMounts and, if
// `short_of_room` (of memory, or in the store), one more: what that gives back is seen at the next look.
std::vector<std::filesystem::path> idle_mounts_to_end(std::vector<IdleMount> idle, std::chrono::seconds keep,
                                                      IdleTime now, bool short_of_room);

// Whether processes wait for memory. Where the kernel counts such waits (PSI; those for the limits of cgroups are among
// them) they do if some process waited for more than a tenth of the time since the last look; else if less than a
// twentieth of the memory is available. Not safe to use from several threads.
class MemoryPressure {
 public:
  explicit MemoryPressure(std::filesystem::path proc = "/proc") : proc_(std::move(proc)) {}
  // The first look, and one long after the last, says no where waits are counted: there is nothing to compare with.
  bool look(IdleTime now);

 private:
  struct Waits {
    IdleTime when;
    std::chrono::microseconds total;
  };
  std::filesystem::path proc_;
  std::optional<Waits> last_;
};

}  // namespace varve::fuse
