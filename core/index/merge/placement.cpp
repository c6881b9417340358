#include "core/index/merge/placement.h"

namespace varve::index {

std::string_view heat_name(Heat heat) {
  switch (heat) {
    case Heat::kSystem:
      return "system";
    case Heat::kCuda:
      return "cuda";
    case Heat::kHot:
      return "hot";
    case Heat::kWatch:
      return "watch";
    case Heat::kCold:
      return "cold";
  }
  return {};
}

}  // namespace varve::index
