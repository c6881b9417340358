#include "core/oci/known_hosts.h"

#include "core/oci/internal/authenticator.h"
#include "core/oci/internal/idle_connections.h"
#include "core/oci/internal/source_state.h"

namespace varve::oci {
namespace {

template <typename T>
std::shared_ptr<T> used_or_new(std::map<std::string, std::weak_ptr<T>>& all, const std::string& key) {
  std::erase_if(all, [](const auto& one) { return one.second.expired(); });
  auto& known = all[key];
  auto one = known.lock();
  if (!one) known = one = std::make_shared<T>();
  return one;
}

}  // namespace

std::shared_ptr<internal::HostRest> KnownHosts::rest_of(const std::string& host) {
  return hosts_.with([&](auto& hosts) {
    auto& rest = hosts[host];
    if (!rest) rest = std::make_shared<internal::HostRest>();
    return rest;
  });
}

std::shared_ptr<internal::IdleConnections> KnownHosts::connections_of(const std::string& trust_key) {
  return connections_.with([&](auto& all) { return used_or_new(all, trust_key); });
}

std::shared_ptr<internal::AuthState> KnownHosts::auth_state_of(const std::string& key) {
  return auth_states_.with([&](auto& all) { return used_or_new(all, key); });
}

}  // namespace varve::oci
