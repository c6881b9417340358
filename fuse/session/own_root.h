#pragma once
#include <string>

namespace varve::fuse {

// Where the root of this process lies in its mount namespace: "" unless it is in a chroot, or may not look.
std::string path_of_own_root();

}  // namespace varve::fuse
