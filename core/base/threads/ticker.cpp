#include "core/base/threads/ticker.h"

#include <condition_variable>
#include <mutex>

namespace varve {

Ticker::Ticker(std::chrono::milliseconds interval, std::function<void()> tick)
    : thread_([interval, tick = std::move(tick)](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        while (!wake.wait_for(lock, stop, interval, [] { return false; }) && !stop.stop_requested()) tick();
      }) {}

}  // namespace varve
