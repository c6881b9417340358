#pragma once
// What a service says to whoever has started it: systemd, or what speaks its protocol.
#include <string_view>

namespace varve::fuse {

// Tells the service manager (sd_notify(3)) if there is one: "READY=1", "STOPPING=1"; with a descriptor "FDSTORE=1...".
// False if it could not be told.
bool notify_service_manager(std::string_view state, int fd = -1);

}  // namespace varve::fuse
