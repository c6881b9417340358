#pragma once
// Which files of the image a session opens and executes, as the kernel tells them (fanotify(7)): data files, dlopen,
// command line tools, any language, whether the bytes were cached or not. docs/guide/sessions.md, "--record".
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// Paths that are remembered to tell each only once; a session that opens more is not followed further.
inline constexpr std::size_t kMaxToldAccesses = 200'000;

// One session's tree. Made by the process that will read the events and inherited by the one that mounts the tree. Not
// shared between threads.
class AccessWatch {
 public:
  // `lower`: the image's tree, `merged`: where the session's will be mounted. Throws std::system_error when the kernel
  // does not let this process watch: it needs CAP_SYS_ADMIN of the machine.
  AccessWatch(const std::filesystem::path& lower, std::filesystem::path merged);

  // From now on accesses to the file system mounted on `merged` are noted, through whatever mount and by whichever
  // process of any namespace. Throws Unsupported if it is no overlayfs of the kernel, as only there a look at the file
  // costs its server nothing.
  void start() const;

  // Readable while events wait.
  int fd() const { return events_.get(); }

  // Each file of the image once when it is first opened, and once when first executed; the path is relative to the
  // session's root. False: no more.
  using Tell = std::function<bool(const std::string& path, bool executed)>;
  // Takes what waits, or a good part of it. False when nothing was left. Never throws: what cannot be told is lost.
  bool take_some(const Tell& tell) noexcept;

  // Times that accesses were lost: the kernel's queue ran over, or there were more files than are remembered.
  std::uint64_t overflows() const { return overflows_; }

 private:
  void take_one(int file, bool executed, const Tell& tell);
  bool is_of_the_image(const std::string& path, int file) const;
  void stop();

  UniqueFd events_;
  UniqueFd lower_;
  std::filesystem::path merged_;
  std::string outside_;  // what the kernel writes before paths of a session if this process is in a chroot; else ""
  std::unordered_set<std::size_t> seen_;  // hashes: with 200,000 of them the odds of two alike are one in 10^9
  std::uint64_t overflows_ = 0;
  bool stopped_ = false;
};

}  // namespace varve::fuse
