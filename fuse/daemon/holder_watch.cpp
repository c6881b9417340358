#include "fuse/daemon/holder_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/errors.h"
#include "core/base/log.h"

namespace varve::fuse {

HolderWatch::HolderWatch(std::vector<Holder> holders) : stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) fail_errno("make an event descriptor");
  thread_ = std::jthread([this, holders = std::move(holders)]() mutable { watch(std::move(holders)); });
}

HolderWatch::~HolderWatch() {
  const std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof one) < 0) log::error("stop watching processes: {}", std::strerror(errno));
}

void HolderWatch::watch(std::vector<Holder> holders) {
  while (!holders.empty()) {
    std::vector<pollfd> waits{{stop_.get(), POLLIN, 0}};
    for (const auto& holder : holders) waits.push_back({holder.process.get(), POLLIN, 0});
    if (::poll(waits.data(), waits.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return log::error("watch processes: {}", std::strerror(errno));
    }
    if (waits[0].revents != 0) return;
    for (std::size_t i = holders.size(); i > 0; --i) {
      if (waits[i].revents == 0) continue;
      const auto ended = std::move(holders[i - 1]);
      holders.erase(holders.begin() + static_cast<std::ptrdiff_t>(i - 1));
      ended.on_end();
    }
  }
}

}  // namespace varve::fuse
