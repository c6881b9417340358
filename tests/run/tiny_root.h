#pragma once
#include <filesystem>

namespace varve::test {

// A root folder with a shell and a few programs of this machine, their libraries, and etc/passwd with the users root and nb (1000:100,
// also in the group video). Enough to run sessions in. Throws if a program is missing.
void make_tiny_root(const std::filesystem::path& root);

}  // namespace varve::test
