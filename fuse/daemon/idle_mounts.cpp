#include "fuse/daemon/idle_mounts.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/files/file.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxProcFileBytes = 64 << 10;
constexpr int kWaitingShare = 10;    // one in so many
constexpr int kAvailableShare = 20;  // likewise
constexpr std::chrono::seconds kLongAgo{10};

// The number behind the first `name` that is behind `line`; absent if there is none.
std::optional<std::uint64_t> number_in(std::string_view text, std::string_view line, std::string_view name) {
  const auto begin = text.find(line);
  if (begin == text.npos) return std::nullopt;
  auto at = text.find(name, begin);
  if (at == text.npos) return std::nullopt;
  at = text.find_first_not_of(' ', at + name.size());
  if (at == text.npos) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// Absent where the kernel has no such file, or was told to have none.
std::optional<std::string> proc_file(const fs::path& path) {
  try {
    const auto bytes = read_file_if_there(path, kMaxProcFileBytes);
    return bytes ? std::optional(std::string(as_text(*bytes))) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<fs::path> idle_mounts_to_end(std::vector<IdleMount> idle, std::chrono::seconds keep, IdleTime now,
                                         bool short_of_room) {
  std::ranges::stable_sort(idle, {}, &IdleMount::since);
  std::size_t count = idle.size() - std::min(idle.size(), kMaxIdleMounts);
  while (count < idle.size() && now - idle[count].since >= keep) ++count;
  if (short_of_room && count < idle.size()) ++count;
  std::vector<fs::path> ending;
  for (std::size_t i = 0; i < count; ++i) ending.push_back(std::move(idle[i].dir));
  return ending;
}

bool MemoryPressure::look(IdleTime now) {
  if (const auto text = proc_file(proc_ / "pressure/memory")) {
    if (const auto total = number_in(*text, "some ", "total=")) {
      const auto last = std::exchange(last_, Waits{.when = now, .total = std::chrono::microseconds(*total)});
      if (!last || now <= last->when || now - last->when > kLongAgo || last_->total < last->total) return false;
      return (last_->total - last->total) * kWaitingShare > now - last->when;
    }
  }
  const auto text = proc_file(proc_ / "meminfo");
  if (!text) return false;
  const auto available = number_in(*text, "", "MemAvailable:");
  const auto total = number_in(*text, "", "MemTotal:");
  return available && total && *available < *total / kAvailableShare;
}

}  // namespace varve::fuse
