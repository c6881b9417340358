#pragma once
// Bytes that nobody can guess, from the kernel; and waits that differ from those of others.
#include <chrono>
#include <cstddef>
#include <string>

#include "core/base/bytes.h"

namespace varve {

// Throws std::system_error if the kernel gives none.
Bytes random_bytes(std::size_t count);
// The same as lower case hexadecimal digits, two for each byte.
std::string random_hex(std::size_t bytes);

// From `least` to `most`, both included. For who met others and would meet them again after the same time; it can be
// guessed.
std::chrono::milliseconds random_wait(std::chrono::milliseconds least, std::chrono::milliseconds most);

}  // namespace varve
