#include "fuse/session/command_ahead.h"

#include "core/base/log.h"
#include "core/base/process/child_process.h"
#include "core/base/process/inherited.h"
#include "fuse/session/executable.h"

namespace varve::fuse {
namespace {

int read_command(const SessionRequest& request) {
  be_unheard();
  close_all_but({});  // the lease of the image is held by a descriptor
  try {
    read_heads(Rootfs::open(request.lower),
               {.name = command_line(request.config, request.options).front(),
                .environment = session_environment(request.config, request.options, {}, own_environment()),
                .working_dir = absolute_working_dir(request.config, request.options)});
  } catch (const std::exception& error) {
    log::debug("the command is not read ahead: {}", error.what());
  }
  return 0;
}

}  // namespace

CommandAhead::CommandAhead(const SessionRequest& request) noexcept {
  if (!request.options.volumes.empty()) return;  // they may hold the command
  try {
    process_ = std::make_unique<ForkedProcess>([&] { return read_command(request); });
  } catch (const std::exception& error) {
    log::debug("the command is not read ahead: {}", error.what());
  }
}

CommandAhead::~CommandAhead() {
  if (process_) process_->abandon();
}

}  // namespace varve::fuse
