#include "fuse/mount/blob_fs.h"

#include <algorithm>

#include "core/base/errors.h"

namespace varve::fuse {

BlobFs::Registration& BlobFs::Registration::operator=(Registration&& other) noexcept {
  std::swap(fs_, other.fs_);
  std::swap(ino_, other.ino_);
  std::swap(number_, other.number_);
  return *this;
}

BlobFs::Registration::~Registration() {
  if (fs_) fs_->remove(ino_, number_);
}

Ino BlobFs::ino_of(const Digest& digest) {
  const auto number = load_le<std::uint64_t>(digest.raw().data()) & ~(std::uint64_t(1) << 63);
  return std::max<Ino>(number, kRoot + 1);
}

BlobFs::Registration BlobFs::add(const std::shared_ptr<BlobFs>& fs, const Digest& digest,
                                 std::shared_ptr<StreamFile> file, bool opened) {
  const auto ino = ino_of(digest);
  const auto name = digest.hex();
  const auto number = fs->files_.with([&](Files& files) {
    auto& slot = files.by_ino[ino];
    if (slot.file() && slot.name != name)
      fail<Unsupported>("{} and {} have the same first 63 bits: cannot be mounted together", name, slot.name);
    slot.name = name;
    slot.registered.push_back({.number = ++files.last_number, .file = std::move(file)});
    slot.last.swap(file);  // freed outside the lock
    if (opened) ++slot.opened;
    return files.last_number;
  });
  return {fs, ino, number};
}

void BlobFs::remove(Ino ino, std::uint64_t number) {
  std::shared_ptr<StreamFile> gone;  // freed outside the lock
  files_.with([&](Files& files) {
    const auto found = files.by_ino.find(ino);
    if (found == files.by_ino.end()) return;
    auto& slot = found->second;
    const auto one = std::ranges::find(slot.registered, number, &Registered::number);
    if (one == slot.registered.end()) return;
    gone = std::move(one->file);
    slot.registered.erase(one);
    if (!slot.registered.empty()) return;
    if (slot.opened > 0)
      slot.last = std::move(gone);
    else
      files.by_ino.erase(found);
  });
}

std::optional<BlobFs::Attributes> BlobFs::lookup(std::string_view name) {
  const auto digest = Digest::try_parse("sha256:" + std::string(name));
  if (!digest) return std::nullopt;
  return files_.with([&](Files& files) -> std::optional<Attributes> {
    const auto found = files.by_ino.find(ino_of(*digest));
    if (found == files.by_ino.end() || found->second.registered.empty() || found->second.name != name)
      return std::nullopt;
    return Attributes{.ino = found->first, .size = found->second.file()->size()};
  });
}

std::optional<BlobFs::Attributes> BlobFs::attributes(Ino ino) {
  if (ino == kRoot) return Attributes{.ino = kRoot, .directory = true};
  const auto file = find(ino);
  if (!file) return std::nullopt;
  return Attributes{.ino = ino, .size = file->size()};
}

bool BlobFs::open(Ino ino) {
  return files_.with([&](Files& files) {
    const auto found = files.by_ino.find(ino);
    if (found == files.by_ino.end()) return false;
    ++found->second.opened;
    return true;
  });
}

void BlobFs::release(Ino ino) {
  std::shared_ptr<StreamFile> last;
  files_.with([&](Files& files) {
    const auto found = files.by_ino.find(ino);
    if (found == files.by_ino.end() || found->second.opened == 0) return;
    if (--found->second.opened > 0 || !found->second.registered.empty()) return;
    last = std::move(found->second.last);
    files.by_ino.erase(found);
  });
}

std::size_t BlobFs::opens(Ino ino) {
  return files_.with([&](Files& files) {
    const auto found = files.by_ino.find(ino);
    return found == files.by_ino.end() ? 0 : found->second.opened;
  });
}

std::vector<BlobFs::Entry> BlobFs::list() {
  return files_.with([](Files& files) {
    std::vector<Entry> entries;
    for (const auto& [ino, file] : files.by_ino) {
      if (!file.registered.empty()) entries.push_back({file.name, ino});
    }
    return entries;
  });
}

std::shared_ptr<StreamFile> BlobFs::find(Ino ino) {
  return files_.with([&](Files& files) {
    const auto found = files.by_ino.find(ino);
    return found == files.by_ino.end() ? nullptr : found->second.file();
  });
}

void BlobFs::read(Ino ino, ByteRange range, ReadDone done) {
  const auto file = find(ino);
  if (!file) fail<NotFound>("no blob file with inode {}", ino);
  const auto offset = std::min(range.offset, file->size());
  const auto length = std::min(range.length, file->size() - offset);
  std::vector<StreamPiece> pieces;
  file->find_pieces({offset, length}, 0, pieces);
  // The file lives until the bytes have been handed over, whatever happens to its registration.
  read_pieces(std::move(pieces), length,
              [file, done = std::move(done)](std::exception_ptr error, ByteView bytes) { done(error, bytes); });
}

}  // namespace varve::fuse
