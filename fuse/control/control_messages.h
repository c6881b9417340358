#pragma once
// What is said over the daemon's control socket, as values: by whom it is asked, and what it answers. As text:
// control_protocol.h.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/digest.h"
#include "core/oci/repository.h"

namespace varve::fuse {

// Where a daemon keeps its things. One daemon serves one root.
struct DaemonPaths {
  std::filesystem::path root;     // state: store, index, log
  std::filesystem::path run_dir;  // sockets and internal mounts

  std::filesystem::path socket() const { return run_dir / "daemon.sock"; }
  std::filesystem::path keeper_socket() const { return run_dir / "keeper.sock"; }
  std::filesystem::path stale_pages_file() const { return run_dir / "stale-pages.json"; }  // stale_pages.h
  std::filesystem::path handover_file() const { return run_dir / "handover.json"; }        // handover.h
  std::filesystem::path log_file() const { return root / "daemon.log"; }
  std::filesystem::path store_dir() const { return root / "store"; }
  // One mount per image in use, named by digest.
  std::filesystem::path images_dir() const { return run_dir / "images"; }
  // Kernel mode: the layer streams as files.
  std::filesystem::path blobs_dir() const { return run_dir / "blobs"; }
};

enum class MountMode : std::uint8_t { kAuto, kKernel, kFuse };
// "auto" "kernel" "fuse".
std::string_view to_string(MountMode mode);
// Throws UsageError.
MountMode parse_mount_mode(std::string_view text);

// An image as a user named it. Paths, never secrets: the daemon reads the credential file itself.
struct ImageSpec {
  std::string reference;  // as Reference::to_string() writes it (absolute)
  std::string platform;   // "" = this machine's
  oci::RegistryOptions registry;

  // From the words of the user; relative paths become absolute, and the credential files that this process's
  // environment names are written down. Throws UsageError.
  static ImageSpec from_user(const std::string& reference, const std::string& platform,
                             const oci::RegistryOptions& registry);
};

struct ImageStats {
  Digest image;
  std::string reference;
  std::uint64_t image_stream_bytes = 0;  // of all layers, uncompressed
  std::uint64_t present_bytes = 0;       // of those, in the store
  std::uint64_t cold_bytes = 0;          // of image_stream_bytes, marked cold: pulled only if asked for
  std::uint64_t cold_present_bytes = 0;  // of present_bytes
  std::uint64_t fetched_bytes = 0;       // from any source since the daemon opened the image
  // Of these: "registry", "mirror", "pack" for start-up packs wherever they came from, "local" for files of this
  // machine, copied_bytes besides.
  std::map<std::string, std::uint64_t> bytes_from = {{"registry", 0}, {"mirror", 0}, {"pack", 0}, {"local", 0}};
  std::vector<oci::SourceStatus> sources;  // of the image's repository, in the order in which they are asked
  std::uint64_t requests = 0;              // to the registry, for bytes
  // Of fetched_bytes, asked for by the image's profile before a reader did; of mounts that are there.
  std::uint64_t prefetched_bytes = 0;
  std::uint64_t decoded_bytes = 0;
  // Uncompressed: contents that were here under layers of other images, and were not fetched.
  std::uint64_t copied_bytes = 0;
  std::uint64_t layers = 0;  // each once
  // Of those, complete and found to be what the image names (diff_id) since it was opened.
  std::uint64_t proved_layers = 0;
  std::uint64_t fetching = 0;  // spans queued or under way
  std::uint64_t errors = 0;    // reads and pulls that failed, after all retries
  std::string last_error;      // "" if none; also of an attempt after which it was tried again
  // Of the reader that waits longest for a source now: since when, and for which repository ("" if nobody waits).
  double waiting_seconds = 0;
  std::string waiting_for;

  // All is here but what is cold.
  bool complete() const { return present_bytes - cold_present_bytes >= image_stream_bytes - cold_bytes; }
};

struct MountStatus {
  std::string dir;
  MountMode mode = MountMode::kFuse;
  bool session = false;                   // held by leases or names, not by `varve mount`
  std::vector<std::int64_t> holders;      // of a session's mount: the processes that hold the leases, where known
  std::vector<std::string> held_by = {};  // likewise: the names under which the tree is held
  std::uint32_t tree_layers = 0;          // the tree of so many of the image's lowest layers; 0: of all
  ImageStats stats;
  std::map<std::string, std::uint64_t> fuse_requests;  // by operation, of the FUSE connection beneath
};

// A mount of an image that nobody uses any more, kept for the next session.
struct IdleMountStatus {
  std::string dir;
  MountMode mode = MountMode::kFuse;
  Digest image;
  std::string reference;  // of who has opened it
  double idle_seconds = 0;
};

struct DaemonProcess {
  std::int64_t pid = 0;
  std::string version;
  double uptime_seconds = 0;
  std::string root;
  std::string keeper = "none";  // what keeps the connections if the daemon dies: "keeper", "systemd" or "none"
  std::int64_t keeper_pid = 0;  // of a keeper of our own
};

// What the way to a registry, its mirrors included, can do, as far as its requests have shown.
struct LinkStatus {
  std::string host;
  double answer_seconds = 0;    // from a request to the first byte of its answer, at least
  double bytes_per_second = 0;  // at most; 0: too little came to tell
};

struct StoreStatus {
  std::uint64_t bytes = 0;
  std::uint64_t max_bytes = 0;  // 0 = no limit
};

// A pull that nobody waits for, while it is under way; one that failed until the next is begun.
struct PullStatus {
  Digest image;
  std::string reference;
  bool cold = false;                // with what is marked cold
  bool fill = false;                // goes on for as long as the image is mounted and used
  std::uint64_t done_bytes = 0;     // stream side, here before or not
  std::uint64_t total_bytes = 0;    // of what is wanted
  std::uint64_t fetched_bytes = 0;  // from a source since it began, what others wanted of these layers included
  double seconds = 0;               // since it began
  double waiting_seconds = 0;       // as in ImageStats
  std::string waiting_for;
  std::string error;  // why it failed; "" while it is under way
};

struct DaemonStatus {
  DaemonProcess daemon;
  std::vector<MountStatus> mounts;
  std::vector<IdleMountStatus> idle;
  std::vector<PullStatus> pulls;
  std::vector<LinkStatus> links;
  StoreStatus store;
};

struct ProcessName {
  std::int64_t pid = 0;
  std::string name;  // as ps(1) shows it; "" if it cannot be seen
};

// Who would lose files if the daemon ended.
struct MountUse {
  std::string dir;
  Digest image;
  std::string reference;
  bool session = false;                   // a lease: sessions, and other commands that hold an image
  std::vector<std::string> held_by = {};  // the names under which it is held
  std::vector<ProcessName> processes;     // who holds the lease, or is in the folder; as far as they can be seen
};

struct StopResult {
  std::vector<MountUse> in_use;  // none: the daemon ends; else it serves on as if nobody had asked
};

struct MountResult {
  std::filesystem::path dir;
  MountMode mode = MountMode::kFuse;  // what was chosen
  std::string why;                    // one line when kAuto did not give kernel mode, else ""
  Digest image;
  double seconds = 0;
  std::uint64_t loaded_bytes = 0;  // fetched before the tree could be read
};

// An image mounted for this connection, e.g. as the lower layer of a session.
struct AcquiredImage {
  std::filesystem::path dir;  // its root, read-only; nosuid and nodev
  MountMode mode = MountMode::kFuse;
  std::string why;
  Digest image;
  std::string config_json;  // the image config, exact
  double seconds = 0;
  std::uint64_t loaded_bytes = 0;
  ImageStats stats;  // before anything was prefetched for this use
};

// An image that can be mounted: opened as a mount would open it, and kept on this machine.
struct LookedUpImage {
  Digest image;                // of its manifest
  std::string reference;       // of the very same image by that digest: hold() of it asks no registry
  std::string config_json;     // the image config, exact
  std::vector<Digest> layers;  // as the manifest names them, base first
};

inline constexpr std::size_t kMaxHoldNameBytes = 255;
inline constexpr std::size_t kMaxHolds = 65'536;
inline constexpr std::chrono::milliseconds kMaxLookUpLimit{600'000};

// The tree of an image's lowest layers, mounted for whoever knows the name.
struct HeldTree {
  std::string name;
  Digest image;
  std::uint32_t layers = 0;   // so many; 0: all
  std::filesystem::path dir;  // its root, read-only, nosuid and nodev; shared by all who use this tree
  MountMode mode = MountMode::kFuse;
  std::string why;  // one line when kAuto did not give kernel mode, else ""
};

// Of the record that one daemon leaves to the next (handover.h): those that a program reads.
struct HandoverFormats {
  int oldest = 0;
  int newest = 0;
};

struct PullResult {
  Digest image;
  std::uint64_t fetched_bytes = 0;
  std::uint64_t copied_bytes = 0;  // uncompressed: of contents that were here under other images
  std::uint64_t present_bytes = 0;
  std::uint64_t image_stream_bytes = 0;
  std::uint64_t cold_bytes = 0;  // of these, marked cold
  std::uint64_t cold_present_bytes = 0;
  bool finished = false;  // false: going on in the background
};

// Ranges of one layer, stream side.
struct LayerRanges {
  Digest layer;
  std::vector<ByteRange> ranges;
};

struct MountOptions {
  bool prefetch = true;  // what the image's profile names, if it has one
  bool record = false;   // a mount for this use alone, whose reads are noted: recording(); nothing is prefetched for it
  bool fill = false;     // fetch all that is not cold meanwhile, while nobody waits for anything else
};

struct BadSpan {
  Digest layer;
  std::uint64_t stream_offset = 0;
  std::uint64_t length = 0;
};
// Of a deep verification: what a layer itself says of the image and the index.
struct VerifiedLayer {
  Digest layer;
  bool complete = false;  // else nothing can be said
  bool proved = false;    // its content is what the image names (diff_id)
  std::string refuted = {};
};
// A mount that goes on showing what was damaged in the store, though the store may be repaired: the kernel keeps pages
// that programs have mapped. It must be mounted anew.
struct StaleMount {
  Digest image;
  std::string reference;
  std::string dir;
  std::string file;         // one of those that show it
  std::uint64_t files = 0;  // how many do
  std::string why;
};

struct VerifyResult {
  std::uint64_t checked_bytes = 0;
  std::uint64_t absent_bytes = 0;  // of an image: not here, and not checked
  std::vector<BadSpan> bad;        // dropped; they will be fetched anew
  std::vector<StaleMount> stale = {};
  // With `deep`:
  std::vector<VerifiedLayer> layers = {};
  bool tree_proved = false;  // the tree is what the layers make; only if all are complete
  std::string tree_refuted = {};
  bool refuted() const {
    for (const auto& layer : layers)
      if (!layer.refuted.empty()) return true;
    return !tree_refuted.empty();
  }
};

struct RemovedImage {
  std::uint64_t freed_bytes = 0;     // on disk
  std::uint64_t removed_layers = 0;  // those that no other image has
  std::uint64_t busy_layers = 0;     // of those, left as something reads or fetches them
};

inline constexpr std::size_t kMaxFetchRanges = 4096;  // of one request, so that it stays within its size

// (bytes done, bytes expected), as the daemon reports them.
using ProgressCallback = std::function<void(std::uint64_t done_bytes, std::uint64_t expected_bytes)>;

}  // namespace varve::fuse
