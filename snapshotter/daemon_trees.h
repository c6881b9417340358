#pragma once
// The trees that the daemon of this machine mounts.
#include "fuse/control/control_client.h"
#include "snapshotter/trees.h"

namespace varve::snapshotter {

struct DaemonTreesOptions {
  fuse::DaemonPaths paths;
  std::filesystem::path program;  // varve: started as the daemon if none runs
  fuse::ImageSpec image;          // how registries are reached; its reference is not used
  fuse::MountMode mode = fuse::MountMode::kAuto;
};

class DaemonTrees final : public Trees {
 public:
  explicit DaemonTrees(DaemonTreesOptions options) : options_(std::move(options)) {}

  KnownImage look_up(const std::string& reference, const Digest& manifest, std::chrono::milliseconds limit) override;
  std::vector<std::pair<std::string, Digest>> opened() override;
  std::filesystem::path hold(const TreeId& tree, const std::string& reference) override;
  void release(const TreeId& tree) override;
  std::vector<TreeId> held() override;

 private:
  fuse::ControlClient connect() const;
  fuse::ImageSpec image(const std::string& reference) const;

  const DaemonTreesOptions options_;
};

}  // namespace varve::snapshotter
