#pragma once
// What one daemon leaves to the next beside the descriptors: a file that says what each connection serves, which
// folders show it and who uses it. RUN/handover.json, written anew with each change; docs/formats/daemon.md "The
// record".
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/process/running_process.h"
#include "fuse/control/control_messages.h"
#include "fuse/daemon/idle_mounts.h"

namespace varve::fuse {

inline constexpr int kHandoverFormat = 5;        // 5: trees of an image's lowest layers, and holds
inline constexpr int kOldestHandoverFormat = 4;  // that is read: it has neither
inline constexpr HandoverFormats kHandoverFormats{.oldest = kOldestHandoverFormat, .newest = kHandoverFormat};
inline constexpr std::uint64_t kMaxHandoverBytes = 256 << 20;

// An image that can be opened again without its repository (kept_images.h).
struct HandoverImage {
  Digest digest;
  ImageSpec spec;
  Digest index;                     // the manifest of the index that its tree came from
  std::uint32_t layers = 0;         // the tree of so many of its lowest layers; 0: of all
  std::optional<Digest> tree = {};  // of such a tree: its digest (prefix_tree.h)
};
// By which the image is named below: the manifest of its index, or the digest of words that say how many layers.
Digest name_of_tree(const Digest& index, std::uint32_t layers);

// An image whose layers are files of a blob connection.
struct HandoverFiles {
  Digest index;
  std::vector<bool> opened;  // by device: the kernel has it open through FUSE, rather than the store file
};

struct HandoverConnection {
  std::string name;  // of its descriptor
  std::filesystem::path dir;
  Bytes init_request;  // the kernel's first message, as it came
  bool by_helper = false;
  std::optional<Digest> tree;        // fuse mode: the index of the image
  std::vector<HandoverFiles> files;  // kernel mode
};

// One image at one folder.
struct HandoverMount {
  std::filesystem::path dir;
  Digest index;
  std::string connection;
  MountMode mode = MountMode::kFuse;
  std::string why;
  bool shared = false;
  bool fill = false;
  std::optional<std::uint64_t> missing_at_first = {};  // as ImageMount's
  std::optional<IdleTime> idle_since = {};             // nobody uses it
};

// A folder that a user named.
struct HandoverName {
  std::filesystem::path dir;
  std::filesystem::path mount;  // its HandoverMount
  bool bound = false;
  bool settled = true;  // false: the user has not been told that it is mounted
};

using LeaseHolder = RunningProcess;  // a process that uses a mount until it ends
struct HandoverLease {
  std::filesystem::path mount;
  LeaseHolder holder;
};

// A tree that is held by a name (HeldTree).
struct HandoverHold {
  std::string name;
  std::filesystem::path mount;
};

struct Handover {
  std::vector<HandoverImage> images;
  std::vector<HandoverConnection> connections;
  std::vector<HandoverMount> mounts;
  std::vector<HandoverName> names;
  std::vector<HandoverLease> leases;
  std::vector<HandoverHold> holds;
};

std::string encode_handover(const Handover& handover);
// Throws CorruptData, or Unsupported for another format.
Handover decode_handover(std::string_view text);

}  // namespace varve::fuse
