#include "core/index/merge/placement.h"

namespace varve::index {

std::string_view tier_name(Tier tier) {
  switch (tier) {
    case Tier::kSystem:
      return "system";
    case Tier::kCuda:
      return "cuda";
    case Tier::kHot:
      return "hot";
    case Tier::kWatch:
      return "watch";
    case Tier::kCold:
      return "cold";
  }
  return {};
}

}  // namespace varve::index
