#include "fuse/mount/blob_operations.h"

#include <algorithm>
#include <cerrno>

#include "core/base/errors.h"
#include "fuse/mount/fuse_channel.h"

namespace varve::fuse {
namespace {

// Readahead of many files at once; the kernel's default of 12 would queue them.
constexpr unsigned kBlobMaxBackground = 256;
constexpr unsigned kBlobCongestionThreshold = 192;

struct BlobFileSystem final : FuseFileSystem {
  explicit BlobFileSystem(std::shared_ptr<BlobFs> blobs) : fs(std::move(blobs)) {}
  void init(fuse_conn_info& connection) override {
    connection.max_read = kMaxReadBytes;
    connection.max_background = kBlobMaxBackground;
    connection.congestion_threshold = kBlobCongestionThreshold;
  }
  std::string name() const override { return "layer streams"; }
  std::shared_ptr<BlobFs> fs;
};

BlobFs& blobs_of(fuse_req_t req) { return *static_cast<BlobFileSystem&>(FuseChannel::file_system_of(req)).fs; }

struct ::stat to_stat(const BlobFs::Attributes& attributes) {
  struct ::stat status {};
  status.st_ino = attributes.ino;
  status.st_mode = attributes.directory ? S_IFDIR | 0500 : S_IFREG | 0400;
  status.st_nlink = attributes.directory ? 2 : 1;
  status.st_size = static_cast<off_t>(attributes.size);
  status.st_blocks = static_cast<blkcnt_t>(attributes.size / 512);
  status.st_blksize = 1 << 20;
  return status;
}

void blob_init(void* user_data, fuse_conn_info* connection) {
  static_cast<FuseFileSystem*>(user_data)->init(*connection);
}

// Files come and go with the images, so that only what is there may be remembered.
void blob_lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  answer(req, "lookup", [&] {
    const auto found = parent == BlobFs::kRoot ? blobs_of(req).lookup(name) : std::nullopt;
    if (!found) return void(fuse_reply_err(req, ENOENT));
    fuse_entry_param entry{};
    entry.ino = found->ino;
    entry.attr = to_stat(*found);
    entry.attr_timeout = kEndlessSeconds;
    fuse_reply_entry(req, &entry);
  });
}

void blob_getattr(fuse_req_t req, fuse_ino_t ino, fuse_file_info*) {
  answer(req, "getattr", [&] {
    const auto found = blobs_of(req).attributes(ino);
    if (!found) return void(fuse_reply_err(req, ESTALE));
    const auto status = to_stat(*found);
    fuse_reply_attr(req, &status, kEndlessSeconds);
  });
}

void blob_open(fuse_req_t req, fuse_ino_t ino, fuse_file_info* file) {
  answer(req, "open", [&] {
    if ((file->flags & O_ACCMODE) != O_RDONLY) return void(fuse_reply_err(req, EROFS));
    if (!blobs_of(req).open(ino)) return void(fuse_reply_err(req, ESTALE));
    file->direct_io = 1;
    file->noflush = 1;
    file->fh = 0;                                                           // must mean the same to the next daemon
    if (fuse_reply_open(req, file) == -ENOENT) blobs_of(req).release(ino);  // the opener is gone
  });
}

void blob_release(fuse_req_t req, fuse_ino_t ino, fuse_file_info*) {
  answer(req, "release", [&] {
    blobs_of(req).release(ino);
    fuse_reply_err(req, 0);
  });
}

void blob_read(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset, fuse_file_info*) {
  answer(req, "read", [&] {
    const ByteRange range{static_cast<std::uint64_t>(offset), std::min(size, kMaxReadBytes)};
    try {
      blobs_of(req).read(ino, range, FuseChannel::file_system_of(req).channel->reply_later(req, ino, range));
    } catch (const NotFound&) {
      fuse_reply_err(req, ESTALE);
    }
  });
}

void blob_readdir(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset, fuse_file_info*) {
  answer(req, "readdir", [&] {
    if (ino != BlobFs::kRoot) return void(fuse_reply_err(req, ENOTDIR));
    std::vector<char> buffer(std::min(size, kMaxReadBytes));
    std::size_t used = 0;
    const auto entries = blobs_of(req).list();
    for (std::size_t i = static_cast<std::size_t>(offset); i < entries.size(); ++i) {
      const auto status = to_stat({.ino = entries[i].ino});
      const auto needed = fuse_add_direntry(req, buffer.data() + used, buffer.size() - used, entries[i].name.c_str(),
                                            &status, static_cast<off_t>(i + 1));
      if (needed > buffer.size() - used) break;
      used += needed;
    }
    fuse_reply_buf(req, buffer.data(), used);
  });
}

constexpr fuse_lowlevel_ops kBlobOperations = [] {
  fuse_lowlevel_ops operations{};
  operations.init = blob_init;
  operations.lookup = blob_lookup;
  operations.getattr = blob_getattr;
  operations.open = blob_open;
  operations.release = blob_release;
  operations.read = blob_read;
  operations.readdir = blob_readdir;
  return operations;
}();

}  // namespace

std::shared_ptr<FuseChannel> mount_blobs(std::shared_ptr<BlobFs> fs, const std::filesystem::path& dir,
                                         const std::string& source, unsigned threads, const FuseKeeping& keeping) {
  return FuseChannel::mount({.dir = dir, .source = source, .threads = threads, .keeping = keeping}, kBlobOperations,
                            std::make_shared<BlobFileSystem>(std::move(fs)));
}

}  // namespace varve::fuse
