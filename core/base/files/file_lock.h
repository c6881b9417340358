#pragma once
// One process at a time: a lock that ends with whoever holds it (flock(2)).
#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "core/base/files/unique_fd.h"

namespace varve {

// Makes the file if it is not there. Absent if somebody else has it; else it is held as long as the descriptor. Throws
// std::system_error.
std::optional<UniqueFd> try_lock(const std::filesystem::path& lock_file, mode_t mode = 0600);

}  // namespace varve
