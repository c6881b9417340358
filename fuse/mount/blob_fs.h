#pragma once
// Kernel mode's one folder of files: the devices of all mounted trees. Names and inode numbers come from digests, so a
// daemon that takes over the mount gives the same ones. Knows no FUSE type.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/guarded.h"
#include "fuse/mount/stream_file.h"

namespace varve::fuse {

using Ino = std::uint64_t;

// Safe to use from any thread.
class BlobFs {
 public:
  static constexpr Ino kRoot = 1;

  struct Attributes {
    Ino ino = 0;
    std::uint64_t size = 0;  // bytes
    bool directory = false;
  };

  // While it lives the file can be looked up. The file itself stays until the kernel has closed it as well.
  class Registration {
   public:
    Registration() = default;
    Registration(std::shared_ptr<BlobFs> fs, Ino ino) : fs_(std::move(fs)), ino_(ino) {}
    Registration(Registration&& other) noexcept = default;
    Registration& operator=(Registration&& other) noexcept;
    ~Registration();

   private:
    std::shared_ptr<BlobFs> fs_;
    Ino ino_ = 0;
  };

  // Adds a file under the hex of `digest`; the same digest again counts one more user of the file that is there.
  // `opened`: the kernel has it open since an earlier daemon.
  static Registration add(const std::shared_ptr<BlobFs>& fs, const Digest& digest, std::shared_ptr<StreamFile> file,
                          bool opened = false);
  // 2 .. 2^63-1, a function of the digest alone.
  static Ino ino_of(const Digest& digest);

  std::optional<Attributes> lookup(std::string_view name);
  // Absent when there is no such inode (any more).
  std::optional<Attributes> attributes(Ino ino);
  // Counts what the kernel holds open.
  bool open(Ino ino);
  void release(Ino ino);
  // True while it is registered or open.
  bool in_use(Ino ino) { return find(ino) != nullptr; }
  struct Entry {
    std::string name;
    Ino ino = 0;
  };
  std::vector<Entry> list();

  // Reads what lies inside the file. Throws NotFound.
  void read(Ino ino, ByteRange range, ReadDone done);

 private:
  struct File {
    std::string name;
    std::shared_ptr<StreamFile> file;
    std::size_t registered = 0;
    std::size_t opened = 0;
  };
  void remove(Ino ino);
  std::shared_ptr<StreamFile> find(Ino ino);

  Guarded<std::map<Ino, File>> files_;
};

}  // namespace varve::fuse
