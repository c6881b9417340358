#pragma once
// Look-ups of images that go on when who asked has waited long enough.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>

#include "fuse/control/control_messages.h"

namespace varve::fuse {

// Safe to use from any thread. Who asks for an image that is being looked up joins.
class LookUps {
 public:
  static constexpr std::size_t kMaxUnderWay = 64;  // each waits for a registry in a thread of its own

  // `look_up` is called by those threads; what it throws is thrown to who asked.
  explicit LookUps(std::function<LookedUpImage(const ImageSpec&)> look_up) : look_up_(std::move(look_up)) {}
  ~LookUps();  // waits for all
  LookUps(const LookUps&) = delete;
  LookUps& operator=(const LookUps&) = delete;

  // Throws TemporaryError when `limit` has passed, and when too many are under way.
  LookedUpImage look_up(const ImageSpec& image, std::chrono::milliseconds limit);
  // False if some are still under way after so long.
  bool wait_for_all(std::chrono::milliseconds patience);

 private:
  std::shared_future<LookedUpImage> begin(const ImageSpec& image);
  void carry_out(const std::string& name, const ImageSpec& image, std::promise<LookedUpImage> answer) noexcept;

  const std::function<LookedUpImage(const ImageSpec&)> look_up_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<std::string, std::shared_future<LookedUpImage>> under_way_;  // by what was asked
};

}  // namespace varve::fuse
