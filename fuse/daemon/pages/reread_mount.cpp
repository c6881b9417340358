#include "fuse/daemon/pages/reread_mount.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "core/base/errors.h"
#include "core/base/files/unique_fd.h"
#include "fuse/mount/mount_child.h"

namespace varve::fuse {
namespace {

constexpr std::size_t kChunkBytes = 64 << 10;
constexpr int kLookEveryMs = 200;

// Before each chunk.
struct ChunkHeader {
  std::int32_t error = 0;
  std::uint32_t length = 0;  // 0 with an error
};

// --- in the child: nothing may allocate or lock

void send_all(int to, const void* bytes, std::size_t length) {
  const auto* at = static_cast<const char*>(bytes);
  while (length > 0) {
    const auto written = ::write(to, at, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ::_exit(1);
    at += written;
    length -= std::size_t(written);
  }
}

void send_error(int to, int error) {
  const ChunkHeader header{.error = error, .length = 0};
  send_all(to, &header, sizeof header);
}

void send_part(int to, const char* path, ByteRange range) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return send_error(to, errno);
  // All of the file: a large folio that lies partly in a range would stay.
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);  // nothing is fetched ahead for this
  std::array<char, kChunkBytes> chunk;
  for (std::uint64_t done = 0; done < range.length;) {
    const auto wanted = std::size_t(std::min<std::uint64_t>(chunk.size(), range.length - done));
    const auto got = ::pread(file, chunk.data(), wanted, off_t(range.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      send_error(to, got < 0 ? errno : ENODATA);
      break;
    }
    const ChunkHeader header{.error = 0, .length = std::uint32_t(got)};
    send_all(to, &header, sizeof header);
    send_all(to, chunk.data(), std::size_t(got));
    done += std::uint64_t(got);
  }
  ::close(file);
}

// --- in the daemon

void receive(int from, std::span<std::byte> into, const CancelFlag& cancel) {
  while (!into.empty()) {
    pollfd readable{.fd = from, .events = POLLIN, .revents = 0};
    const auto ready = ::poll(&readable, 1, kLookEveryMs);
    cancel.throw_if_cancelled();
    if (ready < 0 && errno != EINTR) fail_errno("wait for the process that reads a mount");
    if (ready <= 0) continue;
    const auto got = ::read(from, into.data(), into.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read from the process that reads a mount");
    if (got == 0) fail<TemporaryError>("the process that reads a mount ended before its time");
    into = into.subspan(std::size_t(got));
  }
}

}  // namespace

void reread_mount(const std::filesystem::path& mount, const std::vector<FilePart>& parts, const CancelFlag& cancel,
                  const OnReread& on_reread) {
  std::vector<std::string> paths;
  for (const auto& part : parts) paths.push_back((mount / part.path).string());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  const MountChild child(std::array{to.get()}, [&, to = to.get()] {
    for (std::size_t part = 0; part < parts.size(); ++part) send_part(to, paths[part].c_str(), parts[part].range);
    return 0;
  });
  to.reset();
  Bytes chunk(kChunkBytes);
  for (std::size_t part = 0; part < parts.size(); ++part) {
    for (std::uint64_t done = 0; done < parts[part].range.length;) {
      ChunkHeader header;
      receive(from.get(), std::as_writable_bytes(std::span(&header, 1)), cancel);
      const auto bytes = std::span(chunk).first(std::min<std::size_t>(header.length, chunk.size()));
      receive(from.get(), bytes, cancel);
      on_reread(part, done, header.error, bytes);
      if (header.error != 0) break;
      done += bytes.size();
    }
  }
}

}  // namespace varve::fuse
