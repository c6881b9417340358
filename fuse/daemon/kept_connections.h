#pragma once
// The FUSE connections of a daemon, with what the next one must know to go on with them.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/threads/guarded.h"
#include "fuse/daemon/descriptor_store.h"
#include "fuse/daemon/handover.h"
#include "fuse/daemon/served_image.h"
#include "fuse/mount/blob_fs.h"

namespace varve::fuse {

struct FuseKeeping;

// Safe to use from any thread. A connection is in the list from the kernel's first message until the kernel has closed
// it, mounted or detached.
class KeptConnections : public std::enable_shared_from_this<KeptConnections> {
 public:
  struct Files {
    std::shared_ptr<ServedImage> image;
    std::vector<bool> opened;
  };
  struct Connection {
    std::filesystem::path dir;
    Bytes init_request;
    bool by_helper = false;
    std::shared_ptr<ServedImage> tree;  // fuse mode
    std::shared_ptr<BlobFs> blobs;      // kernel mode
    std::vector<Files> files;           // kernel mode: what is, or was and may still be open, on it
  };

  explicit KeptConnections(std::shared_ptr<DescriptorStore> store) : store_(std::move(store)) {}

  // Names sort in the order in which they were given.
  std::string new_name();
  // For a connection that is about to be mounted.
  FuseKeeping begin(const std::string& name, Connection connection);
  // For one that an earlier daemon has left.
  FuseKeeping take_over(const std::string& name, Connection connection, UniqueFd fd);
  void add_files(const std::string& name, Files files);
  // Ends with it what an earlier daemon has left, if nobody else holds the descriptor: readers get an error.
  void drop(const std::string& name) noexcept;

  // Fills in images and connections, after the mounts.
  void write_to(Handover& handover);

 private:
  FuseKeeping keeping(const std::string& name);

  const std::shared_ptr<DescriptorStore> store_;
  Guarded<std::map<std::string, Connection>> connections_;
  Guarded<std::uint64_t> last_number_;
};

}  // namespace varve::fuse
