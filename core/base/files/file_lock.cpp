#include "core/base/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve {

std::optional<UniqueFd> try_lock(const std::filesystem::path& lock_file, mode_t mode) {
  auto lock = open_file(lock_file, O_RDWR | O_CREAT, mode);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) return std::nullopt;
  fail_errno("lock {}", lock_file.string());
}

}  // namespace varve
