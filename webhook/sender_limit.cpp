#include "webhook/sender_limit.h"

namespace varve::webhook {

bool SenderLimit::is_over(const Minute& minute) const { return clock_.now() - minute.begin >= std::chrono::minutes(1); }

bool SenderLimit::may_order(const std::string& sender, std::uint64_t most) const {
  const auto found = minutes_.find(sender);
  return found == minutes_.end() || found->second.orders < most || is_over(found->second);
}

void SenderLimit::note_order(const std::string& sender) {
  if (const auto found = minutes_.find(sender); found == minutes_.end() || is_over(found->second)) {
    std::erase_if(minutes_, [&](const auto& entry) { return is_over(entry.second); });
    minutes_[sender] = {.begin = clock_.now(), .orders = 0};
  }
  ++minutes_[sender].orders;
}

}  // namespace varve::webhook
