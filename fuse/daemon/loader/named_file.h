#pragma once
// A name of a tree, as the tables of this room are told of it.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/format/erofs.h"
#include "fuse/daemon/loader/device_place.h"

namespace varve::fuse {

// Of a folder: distributions are installed in such a one (site.py; "dist-packages" is Debian's).
inline bool holds_distributions(std::string_view name) { return name == "site-packages" || name == "dist-packages"; }

// Used by one thread, while the strings live.
class NamedFile {
 public:
  NamedFile(const index::ErofsReader& tree, index::Nid file, const std::string& in_folder, std::string_view by_name)
      : nid(file), folder(in_folder), name(by_name), tree_(tree) {}

  const index::Nid nid;
  const std::string& folder;  // below the root
  const std::string_view name;

  // Of a regular file. Looked for once, by who asks first. Throws CorruptData.
  const std::vector<index::DeviceRun>& runs() const {
    if (!runs_) runs_ = tree_.runs(nid);
    return *runs_;
  }
  // Of its first byte; absent if no layer has that.
  std::optional<DevicePlace> first_place() const {
    if (runs().empty() || runs().front().file_offset != 0 || runs().front().device == 0) return std::nullopt;
    return DevicePlace{.device = runs().front().device, .offset = runs().front().device_offset};
  }

 private:
  const index::ErofsReader& tree_;
  mutable std::optional<std::vector<index::DeviceRun>> runs_;
};

}  // namespace varve::fuse
