#pragma once
// Certificates that this machine keeps for one registry, where podman, skopeo and docker keep them
// (containers-certs.d(5)).
#include <filesystem>
#include <string>
#include <vector>

namespace varve::oci::internal {

struct HostCertificates {
  std::string authorities;            // PEM of all *.crt, trusted besides the system's; "" = none
  std::filesystem::path certificate;  // *.cert, the client's; "" = none
  std::filesystem::path key;          // *.key of the same name
};

// ~/.config/containers/certs.d, /etc/containers/certs.d, /etc/docker/certs.d. `home` "" = there is none.
std::vector<std::filesystem::path> certificate_places(const std::filesystem::path& home);

// Of the first place that has a folder of that name, "HOST" or "HOST:PORT" as references write it; what the others hold
// does not count. Throws UsageError naming the file for a certificate without key, a key without certificate, and an
// authority that is no PEM.
HostCertificates find_host_certificates(const std::vector<std::filesystem::path>& places, const std::string& host);

// The file's content. Throws UsageError naming it if it cannot be read or holds no certificate.
std::string read_authorities(const std::filesystem::path& file);

}  // namespace varve::oci::internal
