#pragma once
// What one repository learns of the hosts that serve it, told to others: a mirror that is away costs the first of a
// hundred images the wait, not each.
#include <map>
#include <memory>
#include <string>

#include "core/base/threads/guarded.h"

namespace varve::oci {

namespace internal {
class HostRest;
}

// Safe to use from any thread.
class KnownHosts {
 public:
  // Of a host as it is connected to; the same each time.
  std::shared_ptr<internal::HostRest> rest_of(const std::string& host);

 private:
  Guarded<std::map<std::string, std::shared_ptr<internal::HostRest>>> hosts_;
};

}  // namespace varve::oci
