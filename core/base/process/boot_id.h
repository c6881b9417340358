#pragma once
#include <string>

namespace varve {

// Names this start of the machine (random(4), /proc/sys/kernel/random/boot_id); "" where the kernel does not tell.
std::string boot_id();

}  // namespace varve
