#pragma once
// What a service and whoever has started it say to each other: systemd, or what speaks its protocol.
#include <initializer_list>
#include <string_view>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// Tells the service manager (sd_notify(3)) if there is one: "READY=1", "STOPPING=1"; with a descriptor "FDSTORE=1...".
// False if it could not be told.
bool notify_service_manager(std::string_view state, int fd = -1);

// These signals come through the descriptor (signalfd(2)) from now on, SIGPIPE not at all. Before the first thread.
// Throws std::system_error.
UniqueFd take_signals(std::initializer_list<int> numbers);

}  // namespace varve::fuse
