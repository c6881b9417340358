#include "fuse/daemon/look_ups.h"

#include <thread>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/control/control_protocol.h"

namespace varve::fuse {

LookUps::~LookUps() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return under_way_.empty(); });
}

bool LookUps::wait_for_all(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, patience, [this] { return under_way_.empty(); });
}

LookedUpImage LookUps::look_up(const ImageSpec& image, std::chrono::milliseconds limit) {
  auto answer = begin(image);
  if (answer.wait_for(limit) != std::future_status::ready)
    fail<TemporaryError>("{}: not found within {} ms; the daemon goes on looking: try again", image.reference,
                         limit.count());
  return answer.get();
}

std::shared_future<LookedUpImage> LookUps::begin(const ImageSpec& image) {
  const auto name = nlohmann::json(image).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::lock_guard guard(mutex_);
  if (const auto found = under_way_.find(name); found != under_way_.end()) return found->second;
  if (under_way_.size() >= kMaxUnderWay)
    fail<TemporaryError>("{}: {} other images are being looked up; try again", image.reference, kMaxUnderWay);
  std::promise<LookedUpImage> promise;
  auto answer = promise.get_future().share();
  under_way_.emplace(name, answer);
  try {
    std::thread([this, name, image, promise = std::move(promise)]() mutable {
      carry_out(name, image, std::move(promise));
    }).detach();
  } catch (...) {
    under_way_.erase(name);
    throw;
  }
  return answer;
}

void LookUps::carry_out(const std::string& name, const ImageSpec& image, std::promise<LookedUpImage> answer) noexcept {
  try {
    answer.set_value(look_up_(image));
  } catch (const std::exception& error) {
    log::debug("look up {}: {}", image.reference, error.what());
    answer.set_exception(std::current_exception());
  }
  // This may be destroyed as soon as the lock is released.
  const std::lock_guard guard(mutex_);
  under_way_.erase(name);
  ended_.notify_all();
}

}  // namespace varve::fuse
