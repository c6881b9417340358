#pragma once
// The trees of images, as whoever mounts them gives them.
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "snapshotter/snapshot.h"

namespace varve::snapshotter {

// An image whose tree can be mounted.
struct KnownImage {
  Digest image;
  std::string reference;           // by digest: what it is opened by, without asking a registry
  std::vector<std::string> chain;  // chain IDs, of the first layer first
};

// Safe to use from any thread.
class Trees {
 public:
  virtual ~Trees() = default;

  // Opens the image as a mount would, and keeps what hold() needs. Throws CorruptData where the reference means another
  // image than `manifest`, NotFound for no index, TemporaryError past the limit, and what else speaks against mounting
  // it.
  virtual KnownImage look_up(const std::string& reference, const Digest& manifest, std::chrono::milliseconds limit) = 0;
  // Images that were opened on this machine, without their chains: what look_up() can be asked for.
  virtual std::vector<std::pair<std::string, Digest>> opened() = 0;

  // Mounted until release(), whoever dies meanwhile but the machine; the same again gives the same answer. `reference`
  // as look_up() has given it. The folder is read-only.
  virtual std::filesystem::path hold(const TreeId& tree, const std::string& reference) = 0;
  // One that is not held: nothing happens.
  virtual void release(const TreeId& tree) = 0;
  // Held for this snapshotter.
  virtual std::vector<TreeId> held() = 0;
};

// Chain IDs of layers with these diff_ids, of the first layer first (image-spec config.md "Layer ChainID").
std::vector<std::string> chain_ids(const std::vector<Digest>& diff_ids);

}  // namespace varve::snapshotter
