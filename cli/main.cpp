#include <iostream>

#include "cli/command.h"

int main(int argc, char** argv) { return varve::cli::varve_main(argc, argv, std::cout, std::cerr); }
