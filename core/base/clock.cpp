#include "core/base/clock.h"

namespace varve {

Clock& Clock::system() {
  static Clock clock;
  return clock;
}

}  // namespace varve
