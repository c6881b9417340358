#include "core/base/process/running_process.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include <fmt/format.h>

#include "core/base/files/file.h"
#include "core/base/text/strings.h"

namespace varve {

std::optional<RunningProcess> find_process(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  std::optional<Bytes> stat;
  try {
    stat = read_file_if_there(fmt::format("/proc/{}/stat", pid));
  } catch (const std::system_error&) {  // not ours to look at
  }
  if (!stat) return std::nullopt;
  // "PID (NAME) STATE ..." where NAME may hold anything; the start time is the 22nd field of all, the 20th behind the
  // name.
  auto text = as_text(*stat);
  const auto name_end = text.rfind(')');
  if (name_end == text.npos) return std::nullopt;
  text.remove_prefix(std::min(name_end + 2, text.size()));
  if (text.starts_with('Z') || text.starts_with('X')) return std::nullopt;
  for (int field = 0; field < 19; ++field) text.remove_prefix(std::min(text.find(' '), text.size() - 1) + 1);
  RunningProcess process{.pid = pid};
  if (std::from_chars(text.data(), text.data() + text.size(), process.start_time).ec != std::errc())
    return std::nullopt;
  return process;
}

UniqueFd open_process(const RunningProcess& process) {
  UniqueFd opened(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  // Looked at when the number can no longer change hands.
  if (opened && find_process(process.pid) != process) opened.reset();
  return opened;
}

std::error_code send_signal(const UniqueFd& process, int signal) {
  if (::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0 || errno == ESRCH) return {};
  return {errno, std::generic_category()};
}

std::vector<pid_t> children_of(pid_t process) {
  std::optional<Bytes> listed;
  try {
    listed = read_file_if_there(fmt::format("/proc/{0}/task/{0}/children", process));
  } catch (const std::system_error&) {  // not ours to look at
  }
  std::vector<pid_t> children;
  for (const auto word : split_words(listed ? as_text(*listed) : std::string_view(), " ")) {
    pid_t child = 0;
    std::from_chars(word.data(), word.data() + word.size(), child);
    if (child > 0) children.push_back(child);
  }
  return children;
}

}  // namespace varve
