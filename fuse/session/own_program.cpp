#include "fuse/session/own_program.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mount.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "fuse/session/mount_copy.h"

namespace varve::fuse {
namespace {

constexpr const char* kOwnFile = "/proc/self/exe";
#ifdef MFD_EXEC
constexpr unsigned kExecutable = MFD_EXEC;
#else
constexpr unsigned kExecutable = 0x0010;  // of Linux 6.3, younger than the headers
#endif

bool is_sealed() {
  const auto file = open_file(kOwnFile, O_RDONLY);
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_WRITE) != 0;
}

// Its owner, too, who may change its mode.
bool can_be_changed() {
  if (::faccessat(AT_FDCWD, kOwnFile, W_OK, AT_EACCESS) == 0) return !is_sealed();
  if (errno == EROFS) return false;
  struct stat status {};
  if (::stat(kOwnFile, &status) != 0) fail_errno("look at this program's file");
  return status.st_uid == ::geteuid();
}

// Attached nowhere, so there is no name by which it could be made writable again. Nothing without the right to mount,
// and where the file lies in mounts that this process does not have.
UniqueFd read_only_mount() {
  UniqueFd mount;
  try {
    mount = copy_mount(AT_FDCWD, kOwnFile, false);
  } catch (const std::system_error&) {
    return {};
  }
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  attributes.propagation = MS_PRIVATE;
  if (::syscall(SYS_mount_setattr, mount.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0) return {};
  return mount;
}

UniqueFd make_memory_file() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd file(::memfd_create("varve", kFlags | kExecutable));
  if (!file && errno == EINVAL) file.reset(::memfd_create("varve", kFlags));
  if (!file) fail_errno("make a file in memory for this program");
  return file;
}

UniqueFd sealed_copy() {
  const auto source = open_file(kOwnFile, O_RDONLY);
  const auto copy = make_memory_file();
  for (auto left = file_size(source.get(), kOwnFile); left > 0;) {
    const auto sent = ::sendfile(copy.get(), source.get(), nullptr, left);
    if (sent <= 0) fail_errno("copy this program to memory");
    left -= std::uint64_t(sent);
  }
  if (::fcntl(copy.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    fail_errno("seal the copy of this program");
  // No program is executed that somebody has open for writing.
  return open_file("/proc/self/fd/" + std::to_string(copy.get()), O_RDONLY);
}

// Words of the command line may name them: /dev/fd/63.
void keep_descriptors_open(int but) {
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(one.path().filename().string());
    if (fd > STDERR_FILENO && fd != but) ::fcntl(fd, F_SETFD, 0);
  }
}

}  // namespace

void execute_unchangeable(const std::string& path, const char* const* argv) {
  ::prctl(PR_SET_NAME, std::filesystem::path(path).filename().c_str());  // a descriptor that is executed has none
  if (!can_be_changed()) return;
  auto file = read_only_mount();
  if (!file) file = sealed_copy();
  std::vector<char*> words;
  for (; *argv != nullptr; ++argv) words.push_back(const_cast<char*>(*argv));
  words.resize(std::max<std::size_t>(words.size(), 1));
  words.front() = const_cast<char*>(path.c_str());
  words.push_back(nullptr);
  keep_descriptors_open(file.get());
  ::syscall(SYS_execveat, file.get(), "", words.data(), ::environ, AT_EMPTY_PATH);
  fail_errno("execute {} where nobody can change it", path);
}

}  // namespace varve::fuse
