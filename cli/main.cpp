#include <malloc.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cli/command.h"
#include "core/base/process/inherited.h"

namespace {

// glibc raises the size from which memory comes from the system, and goes back there, to that of the largest piece that
// was freed (at most 32 MiB). After the first buffer of 16 MiB all others lie in the heaps of threads, which keep them:
// `prune apply` of 300,000 files held 260 MiB that nobody used. With a fixed size they go back.
constexpr int kFromSystemBytes = 4 << 20;
constexpr int kMostFreeBytes = 8 << 20;  // at a heap's end

void return_what_is_freed() {
  ::mallopt(M_MMAP_THRESHOLD, kFromSystemBytes);
  ::mallopt(M_TRIM_THRESHOLD, kMostFreeBytes);
}

}  // namespace

int main(int argc, char** argv) {
  return_what_is_freed();
  // What a caller's shell has open, locks among it, is for this command: no daemon, runtime or helper that it starts
  // keeps it.
  varve::close_at_exec_but({});
  // A daemon that is started from here works in another folder, with the same settings.
  if (const char* file = std::getenv("VARVE_CONFIG"); file != nullptr && *file != '\0' && *file != '/')
    ::setenv("VARVE_CONFIG", std::filesystem::absolute(file).c_str(), 1);
  return varve::cli::varve_main(argc, argv, std::cout, std::cerr);
}
