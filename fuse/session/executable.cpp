#include "fuse/session/executable.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/base/files/file.h"
#include "core/base/text/strings.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kHeadBytes = 256;  // of a file, as execve(2) reads (linux/binfmts.h, BINPRM_BUF_SIZE)
constexpr int kMaxInterpreters = 5;        // scripts whose interpreters are scripts (fs/exec.c)

// What the first line of a script has executed, one by the other: none of another file.
std::vector<std::string> executed_by(std::string_view head) {
  if (!head.starts_with("#!")) return {};
  const auto words = split_words(head.substr(2, head.find('\n') - 2), " \t");
  std::vector<std::string> programs;
  if (!words.empty()) programs.emplace_back(words.front());
  if (programs.empty() || !programs.front().ends_with("/env")) return programs;
  const auto is_program = [](std::string_view word) { return !word.starts_with('-') && word.find('=') == word.npos; };
  if (const auto program = std::find_if(words.begin() + 1, words.end(), is_program); program != words.end())
    programs.emplace_back(*program);
  return programs;
}

void read_heads(const Rootfs& rootfs, SearchedCommand command, int depth) {
  const auto found = find_command(rootfs, command);
  const auto file = found.is == Executable::kFound ? rootfs.open_regular(found.path) : std::nullopt;
  if (!file) return;
  Bytes head(std::min(file_size(file->get(), found.path), kHeadBytes));
  pread_exactly(file->get(), 0, head, found.path);
  for (auto& program : executed_by(as_text(head))) {
    command.name = std::move(program);
    if (depth > 0) read_heads(rootfs, command, depth - 1);
  }
}

}  // namespace

FoundCommand find_command(const Rootfs& rootfs, const SearchedCommand& command) {
  const auto& [name, environment, working_dir] = command;
  const auto look_at = [&](std::string path) -> FoundCommand {
    const auto file = rootfs.open_path(path, O_PATH);
    struct stat status {};
    if (!file || ::fstat(file->get(), &status) != 0) return {};
    if (!S_ISREG(status.st_mode) || (status.st_mode & 0111) == 0) return {.is = Executable::kForbidden, .path = {}};
    return {.is = Executable::kFound, .path = std::move(path)};
  };
  if (name.find('/') != name.npos) return look_at(name.starts_with('/') ? name : working_dir + "/" + name);
  std::string path;
  for (const auto& one : environment)
    if (one.starts_with("PATH=")) path = one.substr(5);
  FoundCommand best;
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find(':', at), path.size());
    const auto folder = path.substr(at, end - at);
    at = end + 1;
    auto found = look_at((folder.starts_with('/') ? folder : working_dir + "/" + folder) + "/" + name);
    if (found.is == Executable::kFound) return found;
    if (found.is == Executable::kForbidden) best = std::move(found);
  }
  return best;
}

void read_heads(const Rootfs& rootfs, const SearchedCommand& command) { read_heads(rootfs, command, kMaxInterpreters); }

}  // namespace varve::fuse
