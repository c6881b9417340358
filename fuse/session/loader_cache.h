#pragma once
// The loader of a session is told of a driver's libraries: /etc/ld.so.cache names them in front of the image's own.
//
// ldconfig reads the head of each library of the image for that: over a lazy mount tens of megabytes, one request after
// the other, before the session's first instruction. The image's own cache says the same of its libraries. So it is
// taken, and only the driver's files are read, where the names of files alone show that it is whole:
//
//     /etc/ld.so.cache ----> is each file in its folders that is named as a library of it? --yes--> written
//     the driver's files --> what they are called (DT_SONAME), links of these names          --^  `no--> ldconfig -r
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "fuse/session/cdi.h"
#include "fuse/session/rootfs.h"

namespace varve::fuse {

// `folders`: of the session, where the driver's libraries lie; `files`: what was mounted of the driver. `merged`: the
// session's tree, opened as `rootfs`. Why ldconfig had to look is told to `say`. Throws if the loader does not know the
// driver's libraries then.
void tell_loader_of_driver(const std::vector<std::string>& folders, const std::vector<CdiMount>& files,
                           const Rootfs& rootfs, const std::filesystem::path& merged,
                           const std::function<void(const std::string&)>& say);

}  // namespace varve::fuse
