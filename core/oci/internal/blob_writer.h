#pragma once
#include <atomic>
#include <string>

#include "core/oci/internal/registry_endpoint.h"

namespace varve::oci::internal {

// Pushes blobs: none that are there already, by mount where another repository of the registry has it, in one request,
// or in chunks where one is asked for or one request is too large for the registry. Safe to use from any thread.
class BlobWriter {
 public:
  BlobWriter(RegistryEndpoint& endpoint, std::uint64_t chunk_bytes) : endpoint_(endpoint), chunk_bytes_(chunk_bytes) {}

  bool exists(const Descriptor& blob, const std::string& scopes);
  // `mount_from`: a repository of the same registry that may have the blob, or "".
  void put(const Descriptor& blob, const ByteSource& content, const std::string& mount_from);

 private:
  class Body;
  struct Upload {
    Url location;
    std::uint64_t min_chunk_bytes = 0;  // what the registry asks for
    std::uint64_t offset = 0;           // received so far
  };
  std::optional<Upload> start(const Descriptor& blob, const std::string& mount_from, const std::string& what);
  void put_whole(const Upload& upload, Body& body, const std::string& what);
  void put_chunks(Upload upload, Body& body, Backoff& waits, const std::string& what);
  void put_chunk(Upload& upload, Body& body, std::uint64_t length, const std::string& what);
  void ask_progress(Upload& upload, const std::string& what);
  void finish(const Upload& upload, const Descriptor& blob, const std::string& what);
  Url next_location(const HttpResponse& response, const Url& from, const std::string& what);

  RegistryEndpoint& endpoint_;
  std::atomic<std::uint64_t> chunk_bytes_;  // 0: one request
};

}  // namespace varve::oci::internal
