#pragma once
// What one repository learns of the hosts that serve it, told to others: a mirror that is away costs the first of a
// hundred images the wait, not each; and the second image of a repository needs no new connection, and no new token.
#include <map>
#include <memory>
#include <string>

#include "core/base/threads/guarded.h"

namespace varve::oci {

namespace internal {
class HostRest;
class IdleConnections;
struct AuthState;
}  // namespace internal

// Safe to use from any thread.
class KnownHosts {
 public:
  // Of a host as it is connected to; the same each time.
  std::shared_ptr<internal::HostRest> rest_of(const std::string& host);
  // Of clients with this trust_key(); kept for as long as there is one.
  std::shared_ptr<internal::IdleConnections> connections_of(const std::string& trust_key);
  // Of those who would be told the same; likewise.
  std::shared_ptr<internal::AuthState> auth_state_of(const std::string& key);

 private:
  Guarded<std::map<std::string, std::shared_ptr<internal::HostRest>>> hosts_;
  Guarded<std::map<std::string, std::weak_ptr<internal::IdleConnections>>> connections_;
  Guarded<std::map<std::string, std::weak_ptr<internal::AuthState>>> auth_states_;
};

}  // namespace varve::oci
