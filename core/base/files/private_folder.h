#pragma once
#include <filesystem>

namespace varve {

// Makes a folder that only its owner may enter, with the folders above it where they lack; one that is there and was
// open to others is closed. A symbolic link counts if this user or root made it (a state folder on a larger disk).
// Throws UsageError if something else has the name, std::system_error if it belongs to somebody whose modes we may not
// change.
void make_private_folder(const std::filesystem::path& dir);

}  // namespace varve
