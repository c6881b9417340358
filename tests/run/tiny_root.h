#pragma once
#include <filesystem>

namespace varve::test {

// A root folder with a shell and a few programs of this machine, their libraries, and etc/passwd with the users root
// and nb (1000:100, also in the group video). Enough to run sessions in. Throws if a program is missing.
void make_tiny_root(const std::filesystem::path& root);

// A program of this machine under another name, with the libraries it needs.
void add_program(const std::filesystem::path& root, const std::filesystem::path& program,
                 const std::filesystem::path& name);

}  // namespace varve::test
