#include "testing/disk_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <fstream>
#include <mutex>
#include <optional>

#include "core/base/errors.h"

namespace varve::test {
namespace {

namespace fs = std::filesystem;
using Kind = DiskStep::Kind;

// What is watched. Plain memory under a mutex: the calls come from everywhere.
struct Watch {
  std::string folder;  // with "/" at its end
  DiskState before;
  std::vector<DiskStep> steps;
  std::map<ino_t, int> files;
  int next_file = 0;
  std::optional<DiskFault> fault;
  std::size_t calls = 0;
  std::size_t reads = 0;
  struct BadPlace {
    int file = 0;
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    bool meets(int other, std::uint64_t at, std::uint64_t length) const {
      return file == other && at < to && from < at + length;
    }
  };
  std::vector<BadPlace> bad;
};
std::mutex watch_mutex;
std::unique_ptr<Watch> watch;
std::atomic<bool> watching = false;
std::atomic<int> no_sync = 0;

long result_of(long result) { return result; }

std::string path_of(int fd) {
  char path[4096];
  const auto link = "/proc/self/fd/" + std::to_string(fd);
  const auto length = ::readlink(link.c_str(), path, sizeof path);
  return length < 0 ? "" : std::string(path, std::size_t(length));
}

std::string full_path(int folder, const char* path) {
  if (path[0] == '/') return fs::path(path).lexically_normal().string();
  const auto base = folder == AT_FDCWD ? fs::current_path().string() : path_of(folder);
  return (fs::path(base) / path).lexically_normal().string();
}

// The path below the folder; absent for what lies elsewhere. Files without a name ("/folder/#123 (deleted)") are there.
std::optional<std::string> below(const std::string& path) {
  if (!watch || !path.starts_with(watch->folder)) return std::nullopt;
  return path.substr(watch->folder.size());
}

// -1 for folders and what is no file.
int file_of(const struct stat& status, bool fresh) {
  if (!S_ISREG(status.st_mode)) return -1;
  const auto found = watch->files.find(status.st_ino);
  if (found != watch->files.end() && !fresh) return found->second;
  return watch->files[status.st_ino] = watch->next_file++;
}

int file_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? file_of(status, false) : -1;
}

bool needs_room(Kind kind) {
  return kind == Kind::kWrite || kind == Kind::kName || kind == Kind::kFolder || kind == Kind::kResize;
}

// Counts a call; what it is to fail with, or 0. Half: a write is to be cut short.
int fault_of(Kind kind, bool& half) {
  auto& fault = watch->fault;
  const auto call = watch->calls++;
  if (!fault || fault->of_reads || call < fault->call) return 0;
  if (call > fault->call && !(fault->sticky && needs_room(kind))) return 0;
  half = fault->error == 0 && kind == Kind::kWrite;
  return fault->error;
}

// Carries out a call under the lock, so that steps are in the order in which they were done. `step` is what it did.
template <typename Call, typename Step>
long pass(const std::optional<std::string>& where, Kind kind, const Call& call, const Step& step) {
  bool half = false;
  if (where) {
    if (const int error = fault_of(kind, half); error != 0) {
      errno = error;
      return -1;
    }
  }
  const auto result = result_of(call(half));
  if (where && result >= 0) step(result);
  return result;
}

template <typename Locked>
long locked(const Locked& call) {
  const std::lock_guard lock(watch_mutex);
  return call();
}

void note(DiskStep step) { watch->steps.push_back(std::move(step)); }

int open_watched(int folder, const char* path, int flags, mode_t mode) {
  const auto call = [&](bool = false) { return ::syscall(SYS_openat, folder, path, flags, mode); };
  if (!watching || (flags & (O_CREAT | O_TRUNC)) == 0) {
    const int fd = int(call());
    if (fd >= 0 && watching && (flags & O_TMPFILE) == O_TMPFILE) {
      locked([&] {
        struct stat status {};
        if (below(path_of(fd)) && ::fstat(fd, &status) == 0) file_of(status, true);
        return 0;
      });
    }
    return fd;
  }
  return int(locked([&] {
    const auto where = below(full_path(folder, path));
    struct stat status {};
    const bool there = ::fstatat(folder, path, &status, 0) == 0;
    const auto kind = there ? Kind::kResize : Kind::kName;
    if (there && ((flags & O_TRUNC) == 0 || status.st_size == 0)) return call();
    return pass(where, kind, call, [&](long fd) {
      ::fstat(int(fd), &status);
      if (there)
        note({.kind = Kind::kResize, .file = file_of(status, false)});
      else
        note({.kind = Kind::kName, .file = file_of(status, true), .path = *where});
    });
  }));
}

ssize_t write_watched(int fd, const void* bytes, std::size_t length, std::optional<off_t> offset) {
  const auto call = [&](bool half) {
    const auto take = half ? std::max<std::size_t>(length / 2, 1) : length;
    return offset ? ::syscall(SYS_pwrite64, fd, bytes, take, *offset) : ::syscall(SYS_write, fd, bytes, take);
  };
  if (!watching) return call(false);
  return locked([&] {
    const auto where = below(path_of(fd));
    const bool appends = !offset && where && (::fcntl(fd, F_GETFL) & O_APPEND) != 0;
    const auto at = offset ? *offset : where ? ::lseek(fd, 0, appends ? SEEK_END : SEEK_CUR) : 0;
    return pass(where, Kind::kWrite, call, [&](long written) {
      std::erase_if(watch->bad, [&](const auto& place) {
        return place.meets(file_of(fd), std::uint64_t(at), std::uint64_t(written));
      });
      const auto* from = static_cast<const std::byte*>(bytes);
      note({.kind = Kind::kWrite,
            .file = file_of(fd),
            .offset = std::uint64_t(at),
            .bytes = Bytes(from, from + written)});
    });
  });
}

ssize_t read_watched(int fd, void* bytes, std::size_t length, std::optional<off_t> offset) {
  const auto call = [&](std::size_t take) {
    return offset ? ::syscall(SYS_pread64, fd, bytes, take, *offset) : ::syscall(SYS_read, fd, bytes, take);
  };
  if (!watching) return call(length);
  return locked([&] {
    const int file = below(path_of(fd)) ? file_of(fd) : -1;
    if (file < 0) return call(length);
    const auto at = std::uint64_t(offset ? *offset : ::lseek(fd, 0, SEEK_CUR));
    const bool falls = watch->reads++ == (watch->fault ? watch->fault->call : SIZE_MAX) && watch->fault->of_reads;
    if (falls && watch->fault->error == 0) return call(std::max<std::size_t>(length / 2, 1));
    if (falls && watch->fault->sticky) watch->bad.push_back({file, at, at + length});
    const bool is_bad =
        std::ranges::any_of(watch->bad, [&](const auto& place) { return place.meets(file, at, length); });
    if (!falls && !is_bad) return call(length);
    errno = watch->fault->error;
    return -1L;
  });
}

int sync_watched(int fd, long number) {
  const auto call = [&](bool = false) { return no_sync > 0 ? 0 : ::syscall(number, fd); };
  if (!watching) return int(call());
  return int(locked([&] {
    auto path = path_of(fd);
    const int file = watch ? file_of(fd) : -1;
    auto where = below(file < 0 ? path + "/" : path);
    return pass(where, Kind::kSync, call, [&](long) {
      if (file < 0 && !where->empty()) where->pop_back();
      note({.kind = Kind::kSync, .file = file, .path = *where});
    });
  }));
}

int resize_watched(int fd, off_t size) {
  const auto call = [&](bool = false) { return ::syscall(SYS_ftruncate, fd, size); };
  if (!watching) return int(call());
  return int(locked([&] {
    return pass(below(path_of(fd)), Kind::kResize, call,
                [&](long) { note({.kind = Kind::kResize, .file = file_of(fd), .offset = std::uint64_t(size)}); });
  }));
}

int punch_watched(int fd, int mode, off_t offset, off_t length) {
  const auto call = [&](bool = false) { return ::syscall(SYS_fallocate, fd, mode, offset, length); };
  if (!watching || (mode & FALLOC_FL_PUNCH_HOLE) == 0) return int(call());
  return int(locked([&] {
    return pass(below(path_of(fd)), Kind::kPunch, call, [&](long) {
      note({.kind = Kind::kPunch,
            .file = file_of(fd),
            .offset = std::uint64_t(offset),
            .length = std::uint64_t(length)});
    });
  }));
}

int rename_watched(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const auto call = [&](bool = false) { return ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags); };
  if (!watching) return int(call());
  return int(locked([&] {
    const auto old_path = below(full_path(from_folder, from));
    const auto new_path = below(full_path(to_folder, to));
    return pass(old_path && new_path ? new_path : std::nullopt, Kind::kRename, call, [&](long) {
      struct stat status {};
      ::fstatat(to_folder, to, &status, AT_SYMLINK_NOFOLLOW);
      note({.kind = Kind::kRename, .file = file_of(status, false), .path = *old_path, .new_path = *new_path});
    });
  }));
}

int link_watched(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  const auto call = [&](bool = false) { return ::syscall(SYS_linkat, from_folder, from, to_folder, to, flags); };
  if (!watching) return int(call());
  return int(locked([&] {
    const auto where = below(full_path(to_folder, to));
    return pass(where, Kind::kName, call, [&](long) {
      struct stat status {};
      ::fstatat(to_folder, to, &status, AT_SYMLINK_NOFOLLOW);
      note({.kind = Kind::kName, .file = file_of(status, false), .path = *where});
    });
  }));
}

int unlink_watched(int folder, const char* path, int flags) {
  const auto call = [&](bool = false) { return ::syscall(SYS_unlinkat, folder, path, flags); };
  if (!watching) return int(call());
  return int(locked([&] {
    struct stat status {};
    const bool there = ::fstatat(folder, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
    const auto where = there ? below(full_path(folder, path)) : std::nullopt;
    return pass(where, Kind::kUnname, call, [&](long) {
      note({.kind = Kind::kUnname, .file = S_ISREG(status.st_mode) ? file_of(status, false) : -1, .path = *where});
    });
  }));
}

int mkdir_watched(int folder, const char* path, mode_t mode) {
  const auto call = [&](bool = false) { return ::syscall(SYS_mkdirat, folder, path, mode); };
  if (!watching) return int(call());
  return int(locked([&] {
    const auto where = below(full_path(folder, path));
    struct stat status {};
    if (::fstatat(folder, path, &status, 0) == 0) return call();
    return pass(where, Kind::kFolder, call, [&](long) { note({.kind = Kind::kFolder, .file = -1, .path = *where}); });
  }));
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

Bytes content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return to_bytes(as_bytes(text));
}

}  // namespace

DiskWatch::DiskWatch(const fs::path& folder) { begin(folder); }

DiskWatch::DiskWatch(const fs::path& folder, const DiskFault& fault) {
  begin(folder);
  watch->fault = fault;
}

void DiskWatch::begin(const fs::path& folder) {
  if (watching) fail<Error>("a disk is watched already");
  auto fresh = std::make_unique<Watch>();
  fresh->folder = fs::canonical(folder).string() + "/";
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto name = fs::canonical(entry.path()).string().substr(fresh->folder.size());
    struct stat status {};
    ::stat(entry.path().c_str(), &status);
    if (entry.is_directory()) {
      fresh->before.folders.insert(name);
    } else {
      const int file = fresh->files[status.st_ino] = fresh->next_file++;
      fresh->before.names[name] = file;
      fresh->before.files[file] = content_of(entry.path());
    }
  }
  const std::lock_guard lock(watch_mutex);
  watch = std::move(fresh);
  watching = true;
}

DiskWatch::~DiskWatch() {
  const std::lock_guard lock(watch_mutex);
  watching = false;
  watch.reset();
}

std::size_t DiskWatch::steps() const {
  const std::lock_guard lock(watch_mutex);
  return watch->steps.size();
}

std::size_t DiskWatch::calls() const {
  const std::lock_guard lock(watch_mutex);
  return watch->calls;
}

std::size_t DiskWatch::reads() const {
  const std::lock_guard lock(watch_mutex);
  return watch->reads;
}

DiskRecording DiskWatch::take() {
  const std::lock_guard lock(watch_mutex);
  watching = false;
  return {std::move(watch->before), std::move(watch->steps)};
}

NoSync::NoSync() { ++no_sync; }
NoSync::~NoSync() { --no_sync; }

}  // namespace varve::test

// In the place of libc's, for all of the program: what is defined here comes first.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = varve::test::mode_of(flags, arguments);
  va_end(arguments);
  return varve::test::open_watched(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = varve::test::mode_of(flags, arguments);
  va_end(arguments);
  return varve::test::open_watched(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = varve::test::mode_of(flags, arguments);
  va_end(arguments);
  return varve::test::open_watched(folder, path, flags, mode);
}
ssize_t write(int fd, const void* bytes, std::size_t length) {
  return varve::test::write_watched(fd, bytes, length, std::nullopt);
}
ssize_t pwrite(int fd, const void* bytes, std::size_t length, off_t offset) {
  return varve::test::write_watched(fd, bytes, length, offset);
}
ssize_t pwrite64(int fd, const void* bytes, std::size_t length, off64_t offset) {
  return varve::test::write_watched(fd, bytes, length, offset);
}
ssize_t read(int fd, void* bytes, std::size_t length) {
  return varve::test::read_watched(fd, bytes, length, std::nullopt);
}
ssize_t pread(int fd, void* bytes, std::size_t length, off_t offset) {
  return varve::test::read_watched(fd, bytes, length, offset);
}
ssize_t pread64(int fd, void* bytes, std::size_t length, off64_t offset) {
  return varve::test::read_watched(fd, bytes, length, offset);
}
int fsync(int fd) { return varve::test::sync_watched(fd, SYS_fsync); }
int fdatasync(int fd) { return varve::test::sync_watched(fd, SYS_fdatasync); }
int ftruncate(int fd, off_t size) noexcept { return varve::test::resize_watched(fd, size); }
int ftruncate64(int fd, off64_t size) noexcept { return varve::test::resize_watched(fd, size); }
int fallocate(int fd, int mode, off_t offset, off_t length) {
  return varve::test::punch_watched(fd, mode, offset, length);
}
int rename(const char* from, const char* to) noexcept {
  return varve::test::rename_watched(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  return varve::test::link_watched(from_folder, from, to_folder, to, flags);
}
int link(const char* from, const char* to) noexcept {
  return varve::test::link_watched(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int unlink(const char* path) noexcept { return varve::test::unlink_watched(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  return varve::test::unlink_watched(folder, path, flags);
}
int rmdir(const char* path) noexcept { return varve::test::unlink_watched(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
  struct stat status {};
  const bool folder = ::lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return varve::test::unlink_watched(AT_FDCWD, path, folder ? AT_REMOVEDIR : 0);
}
int mkdir(const char* path, mode_t mode) noexcept { return varve::test::mkdir_watched(AT_FDCWD, path, mode); }

}  // extern "C"
