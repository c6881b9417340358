#pragma once
// Standard streams as a session may have them.

namespace varve::fuse {

// For root, before a session's processes inherit this one's standard streams: one that is a device of the machine, such
// as /dev/null, becomes the same device in a file system of its own. crun makes streams the container's, and whoever
// owns a device, as root does all, may change its mode: an image would close the machine's /dev/null to everybody.
// Terminals, pipes and files stay as they are. Throws std::system_error.
void take_own_device_streams();

}  // namespace varve::fuse
