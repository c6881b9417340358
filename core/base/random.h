#pragma once
// Bytes that nobody can guess, from the kernel.
#include <cstddef>
#include <string>

#include "core/base/bytes.h"

namespace varve {

// Throws std::system_error if the kernel gives none.
Bytes random_bytes(std::size_t count);
// The same as lower case hexadecimal digits, two for each byte.
std::string random_hex(std::size_t bytes);

}  // namespace varve
