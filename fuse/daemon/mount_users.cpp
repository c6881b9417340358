#include "fuse/daemon/mount_users.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <string>

#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/running_process.h"
#include "core/base/text/strings.h"
#include "fuse/mount/fuse_mount.h"
#include "fuse/mount/mount_table.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;
using Steady = std::chrono::steady_clock;

constexpr auto kAfterKill = std::chrono::seconds(5);

bool is_within(std::string_view path, std::string_view dir) {
  return path.starts_with(dir) && (path.size() == dir.size() || path[dir.size()] == '/');
}

// What a link of /proc says, which is not followed.
bool leads_into(const fs::path& link, std::string_view dir) {
  std::error_code error;
  const auto target = fs::read_symlink(link, error);
  return !error && is_within(target.native(), dir);
}

// "ADDRESS MODE OFFSET DEVICE INODE   PATH"
bool maps_something_of(const fs::path& process, std::string_view dir) {
  try {
    const auto maps = read_file_if_there(process / "maps");
    if (!maps) return false;
    auto text = as_text(*maps);
    while (!text.empty()) {
      const auto line = text.substr(0, text.find('\n'));
      if (const auto path = line.find('/'); path != line.npos && is_within(line.substr(path), dir)) return true;
      text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
  } catch (const std::system_error&) {  // not ours to look at
  }
  return false;
}

bool uses(const fs::path& process, std::string_view dir) {
  for (const auto* link : {"cwd", "root", "exe"})
    if (leads_into(process / link, dir)) return true;
  std::error_code error;
  for (fs::directory_iterator at(process / "fd", error), end; !error && at != end; at.increment(error))
    if (leads_into(at->path(), dir)) return true;
  return maps_something_of(process, dir);
}

bool wait_for_end(std::vector<UniqueFd>& processes, Steady::time_point until) {
  while (!processes.empty()) {
    std::vector<pollfd> waits;
    for (const auto& process : processes) waits.push_back({process.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Steady::now()).count();
    if (left <= 0) return false;
    if (::poll(waits.data(), waits.size(), int(std::min<std::int64_t>(left, 1'000))) < 0) continue;
    for (std::size_t i = waits.size(); i > 0; --i)
      if (waits[i - 1].revents != 0) processes.erase(processes.begin() + std::ptrdiff_t(i - 1));
  }
  return true;
}

void signal_all(const std::vector<UniqueFd>& processes, int signal) {
  for (const auto& process : processes) send_signal(process, signal);  // whether they end is waited for
}

}  // namespace

ProcessName name_of_process(pid_t pid) {
  ProcessName process{.pid = pid, .name = {}};
  try {
    if (const auto name = read_file_if_there(fmt::format("/proc/{}/comm", pid))) process.name = trimmed(as_text(*name));
  } catch (const std::system_error&) {  // not ours to look at
  }
  return process;
}

std::vector<ProcessName> find_users(const fs::path& dir) {
  std::vector<ProcessName> users;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size() || pid == ::getpid()) continue;
    if (uses(at->path(), dir.native())) users.push_back(name_of_process(pid));
  }
  return users;
}

bool is_busy(const fs::path& dir) {
  if (!find_overlays_on(dir).empty()) return true;
  if (!may_mount()) return !find_users(dir).empty();
  // EAGAIN: not in use, and marked; a second call would unmount it.
  if (::umount2(dir.c_str(), MNT_EXPIRE | UMOUNT_NOFOLLOW) == 0) return false;
  if (errno == EBUSY) return true;
  const UniqueFd takes_the_mark_off(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return false;
}

void end_processes(const std::vector<RunningProcess>& holders, std::chrono::milliseconds grace) {
  std::vector<UniqueFd> processes;
  for (const auto& holder : holders)
    if (auto process = open_process(holder)) processes.push_back(std::move(process));
  signal_all(processes, SIGTERM);
  if (wait_for_end(processes, Steady::now() + grace)) return;
  log::warn("{} processes that use images did not end in {} s; they are killed", processes.size(),
            std::chrono::duration_cast<std::chrono::seconds>(grace).count());
  signal_all(processes, SIGKILL);
  if (!wait_for_end(processes, Steady::now() + kAfterKill)) log::error("{} of them do not end", processes.size());
}

}  // namespace varve::fuse
