#pragma once
// Amounts as all commands and reports write them for people.
#include <cstdint>
#include <string>

namespace varve {

// "1.50 GB", "812.0 kB": decimal units, as registries bill.
std::string human_bytes(std::uint64_t bytes);

}  // namespace varve
