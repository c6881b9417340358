#include "core/oci/internal/host_certificates.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"

namespace varve::oci::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxAuthoritiesBytes = 16 * 1024 * 1024;  // a system's whole bundle is about 200 KB

// In the order of their names, so that every run takes the same. A folder that others may not look into is as good as
// none, as with podman.
std::vector<fs::path> files_in(const fs::path& dir) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error))
    files.push_back(entry->path());
  if (error && error != std::errc::permission_denied) fail<UsageError>("{}: {}", dir.string(), error.message());
  std::ranges::sort(files);
  return files;
}

fs::path with_extension(fs::path file, const char* extension) { return file.replace_extension(extension); }

void add_client(HostCertificates& found, const fs::path& certificate) {
  auto key = with_extension(certificate, ".key");
  std::error_code error;
  if (!fs::exists(key, error))
    fail<UsageError>(
        "{}: the key {} is missing beside the client's certificate (an authority's has the extension .crt)",
        certificate.string(), key.filename().string());
  if (!found.certificate.empty()) {
    log::warn("{}: the client's certificate {} is taken, this one is not", certificate.string(),
              found.certificate.filename().string());
    return;
  }
  found.certificate = certificate;
  found.key = std::move(key);
}

HostCertificates read_folder(const fs::path& dir) {
  HostCertificates found;
  std::error_code error;
  for (const auto& file : files_in(dir)) {
    const auto extension = file.extension();
    if (extension == ".crt") {
      found.authorities += read_authorities(file) + "\n";
    } else if (extension == ".cert") {
      add_client(found, file);
    } else if (extension == ".key" && !fs::exists(with_extension(file, ".cert"), error)) {
      fail<UsageError>("{}: the client's certificate {} is missing beside the key", file.string(),
                       with_extension(file, ".cert").filename().string());
    }
  }
  return found;
}

}  // namespace

std::vector<fs::path> certificate_places(const fs::path& home) {
  std::vector<fs::path> places;
  if (!home.empty()) places.push_back(home / ".config/containers/certs.d");
  places.emplace_back("/etc/containers/certs.d");
  places.emplace_back("/etc/docker/certs.d");
  return places;
}

HostCertificates find_host_certificates(const std::vector<fs::path>& places, const std::string& host) {
  std::error_code error;
  for (const auto& place : places)
    if (const auto dir = place / host; fs::is_directory(dir, error)) return read_folder(dir);
  return {};
}

std::string read_authorities(const fs::path& file) {
  std::string text;
  try {
    text = as_text(read_file(file, kMaxAuthoritiesBytes));
  } catch (const std::exception& error) {
    fail<UsageError>("the certificates of authorities in {} cannot be read: {}", file.string(), error.what());
  }
  if (text.find("-----BEGIN CERTIFICATE-----") == std::string::npos &&
      text.find("-----BEGIN TRUSTED CERTIFICATE-----") == std::string::npos)
    fail<UsageError>("{}: it holds no certificate (PEM, -----BEGIN CERTIFICATE-----)", file.string());
  return text;
}

}  // namespace varve::oci::internal
