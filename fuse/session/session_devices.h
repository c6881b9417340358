#pragma once
// What devices need in a session: their files, the driver's libraries over the image's tree, and the loader's cache
// brought up to date. docs/guide/sessions.md, "GPUs".
#include <filesystem>
#include <functional>
#include <string>

#include "fuse/session/bundle.h"
#include "fuse/session/cdi.h"
#include "fuse/session/rootfs.h"

namespace varve::fuse {

// The driver's files are mounted onto `merged` (the session's tree, opened as `rootfs`) in this process's own mount
// namespace, where every runtime finds them; links and the loader's cache are written to the session's writable layer.
// The hooks of NVIDIA's toolkit that do this are carried out here, with the machine's ldconfig: programs of the image
// never run outside the session. Others are told to `say`. Throws what keeps a device, its driver's files or its links
// from being there: without them frameworks fall back to the CPU without a word.
void add_devices(SessionSpec& spec, const CdiEdits& edits, const Rootfs& rootfs, const std::filesystem::path& merged,
                 const std::function<void(const std::string&)>& say);

}  // namespace varve::fuse
