#include "core/base/errors.h"

namespace varve {

int errno_for(const std::exception& error) {
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    if (system->code().category() == std::generic_category() || system->code().category() == std::system_category())
      return system->code().value();
  }
  if (dynamic_cast<const NotFound*>(&error) != nullptr) return ENOENT;
  return EIO;
}

int exit_status_for(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error) != nullptr) return 2;
  if (dynamic_cast<const TemporaryError*>(&error) != nullptr) return 75;
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    const int code = system->code().value();
    if (code == ENOSPC || code == EDQUOT) return 75;
  }
  return 1;
}

}  // namespace varve
