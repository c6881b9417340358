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

#include "core/base/threads/guarded.h"
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

  // While it lives the file can be looked up. The file itself stays until the kernel has closed it as well, or somebody
  // else has registered his under the same name.
  class Registration {
   public:
    Registration() = default;
    Registration(std::shared_ptr<BlobFs> fs, Ino ino, std::uint64_t number)
        : fs_(std::move(fs)), ino_(ino), number_(number) {}
    Registration(Registration&& other) noexcept = default;
    Registration& operator=(Registration&& other) noexcept;
    ~Registration();

   private:
    std::shared_ptr<BlobFs> fs_;
    Ino ino_ = 0;
    std::uint64_t number_ = 0;
  };

  // Adds a file under the hex of `digest`. What has the same digest has the same bytes: of several the first that is
  // registered is read. `opened`: the kernel has it open since an earlier daemon.
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
  // How often the kernel has it open.
  std::size_t opens(Ino ino);
  struct Entry {
    std::string name;
    Ino ino = 0;
  };
  std::vector<Entry> list();

  // Reads what lies inside the file. Throws NotFound.
  void read(Ino ino, ByteRange range, ReadDone done);

 private:
  struct Registered {
    std::uint64_t number = 0;
    std::shared_ptr<StreamFile> file;
  };
  struct File {
    std::string name;
    std::vector<Registered> registered;
    std::shared_ptr<StreamFile> last;  // that was registered, where none is and the kernel has it open
    std::size_t opened = 0;

    const std::shared_ptr<StreamFile>& file() const { return registered.empty() ? last : registered.front().file; }
  };
  struct Files {
    std::map<Ino, File> by_ino;
    std::uint64_t last_number = 0;  // of a registration
  };
  void remove(Ino ino, std::uint64_t number);
  std::shared_ptr<StreamFile> find(Ino ino);

  Guarded<Files> files_;
};

}  // namespace varve::fuse
