#include <iostream>

#include "cli/command.h"
#include "core/base/inherited.h"

int main(int argc, char** argv) {
  // What a caller's shell has open, locks among it, is for this command: no daemon, runtime or helper that it starts
  // keeps it.
  varve::close_at_exec_but({});
  return varve::cli::varve_main(argc, argv, std::cout, std::cerr);
}
