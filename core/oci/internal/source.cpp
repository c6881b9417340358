#include "core/oci/internal/source.h"

#include <algorithm>

namespace varve::oci::internal {

bool is_loopback_host(std::string_view host) {
  if (host.starts_with("[::1]")) return true;
  const auto name = host.substr(0, host.find(':'));
  if (name == "localhost") return true;
  return name.starts_with("127.") &&
         std::all_of(name.begin(), name.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

Source own_source(const Reference& reference, bool plain_http) {
  Source source;
  source.host = reference.host;
  // Docker Hub answers under another name than the one in references.
  source.connect_to = reference.host == "docker.io" ? "registry-1.docker.io" : reference.host;
  source.repository = reference.repository;
  source.scheme = plain_http                         ? Scheme::kHttp
                  : is_loopback_host(reference.host) ? Scheme::kHttpIfSpoken
                                                     : Scheme::kHttps;
  return source;
}

}  // namespace varve::oci::internal
