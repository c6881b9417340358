#include "core/codec/archive_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <archive.h>
#include <archive_entry.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/free_with.h"
#include "core/base/zeros.h"

namespace varve::codec {
namespace {

constexpr std::size_t kBlockBytes = 256 << 10;

using Handle = std::unique_ptr<archive, FreeWith<archive_read_free>>;

// libarchive's words can quote names of the archive: one line, and no tricks on a terminal.
std::string reason_of(archive* handle) {
  const char* text = archive_error_string(handle);
  std::string reason = text == nullptr ? "unknown error" : text;
  std::replace_if(
      reason.begin(), reason.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return reason;
}

Handle new_handle() {
  Handle handle(archive_read_new());
  if (handle == nullptr) throw std::bad_alloc();
  // Formats and filters by name: each more is more code that hostile bytes can reach.
  archive_read_support_format_tar(handle.get());
  archive_read_support_format_zip(handle.get());
  archive_read_support_filter_gzip(handle.get());
  archive_read_support_filter_bzip2(handle.get());
  archive_read_support_filter_xz(handle.get());
  archive_read_support_filter_zstd(handle.get());
  return handle;
}

std::string name_of(archive_entry* entry, std::uint64_t number) {
  if (const char* name = archive_entry_pathname_utf8(entry)) return name;
  if (const char* name = archive_entry_pathname(entry)) return name;
  return fmt::format("entry {}", number);  // a name in a character set that cannot be converted here
}

}  // namespace

struct ArchiveReader::State {
  std::string name;
  ArchiveLimits limits;
  UniqueFd fd;
  Handle handle;
  std::uint64_t entries = 0;
  std::uint64_t content_bytes = 0;
  bool at_entry = false;

  void open_with(int status) {
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
      fail<CorruptData>("{}: no archive that can be read: {}", name, reason_of(handle.get()));
  }

  void count_content(std::uint64_t bytes) {
    content_bytes += bytes;
    if (content_bytes > limits.max_content_bytes)
      fail<Unsupported>("{}: more than {} bytes of content", name, limits.max_content_bytes);
    const auto packed = std::uint64_t(std::max<la_int64_t>(archive_filter_bytes(handle.get(), -1), 0)) + 1;
    if (content_bytes > ArchiveLimits::kRatioFreeBytes && content_bytes / packed > limits.max_ratio)
      fail<Unsupported>("{}: {} bytes unpacked from {}: taken for a bomb", name, content_bytes, packed);
  }

  // libarchive would pass over any number of unpacked bytes without coming back to us, so those of packed tars are read
  // here.
  void pass_over_content() {
    const bool packed_stream = (archive_format(handle.get()) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR &&
                               archive_filter_count(handle.get()) > 1;
    if (!std::exchange(at_entry, false) || !packed_stream) return;
    const void* block = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    int status = ARCHIVE_OK;
    while (status == ARCHIVE_OK || status == ARCHIVE_WARN || status == ARCHIVE_RETRY) {
      status = archive_read_data_block(handle.get(), &block, &size, &offset);
      count_content(status == ARCHIVE_OK ? size : 0);
    }
  }
};

ArchiveReader::ArchiveReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
ArchiveReader::ArchiveReader(ArchiveReader&&) noexcept = default;
ArchiveReader& ArchiveReader::operator=(ArchiveReader&&) noexcept = default;
ArchiveReader::~ArchiveReader() = default;

ArchiveReader ArchiveReader::open(const std::filesystem::path& path, const ArchiveLimits& limits) {
  auto state = std::make_unique<State>();
  state->name = path.string();
  state->limits = limits;
  state->fd = open_file(path, O_RDONLY);
  state->handle = new_handle();
  state->open_with(archive_read_open_fd(state->handle.get(), state->fd.get(), kBlockBytes));
  return ArchiveReader(std::move(state));
}

ArchiveReader ArchiveReader::of_bytes(ByteView bytes, std::string name, const ArchiveLimits& limits) {
  auto state = std::make_unique<State>();
  state->name = std::move(name);
  state->limits = limits;
  state->handle = new_handle();
  state->open_with(archive_read_open_memory(state->handle.get(), bytes.data(), bytes.size()));
  return ArchiveReader(std::move(state));
}

bool ArchiveReader::next(ArchiveEntry& entry) {
  state_->pass_over_content();
  archive_entry* raw = nullptr;
  int status = ARCHIVE_RETRY;
  while (status == ARCHIVE_RETRY) {
    status = archive_read_next_header(state_->handle.get(), &raw);
    if (status != ARCHIVE_EOF && ++state_->entries > state_->limits.max_entries)
      fail<Unsupported>("{}: more than {} entries", state_->name, state_->limits.max_entries);
  }
  if (status == ARCHIVE_EOF) return false;
  if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
    fail<CorruptData>("{}: after entry {}: {}", state_->name, state_->entries - 1, reason_of(state_->handle.get()));
  entry.name = name_of(raw, state_->entries);
  entry.size.reset();
  if (archive_entry_size_is_set(raw) != 0 && archive_entry_size(raw) >= 0)
    entry.size = std::uint64_t(archive_entry_size(raw));
  entry.regular = archive_entry_filetype(raw) == AE_IFREG && archive_entry_hardlink(raw) == nullptr;
  entry.encrypted = archive_entry_is_data_encrypted(raw) != 0;
  state_->at_entry = true;
  return true;
}

void ArchiveReader::read(const std::function<bool(ByteView)>& take) {
  if (!std::exchange(state_->at_entry, false)) return;
  la_int64_t expected = 0;
  while (true) {
    const void* block = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    const int status = archive_read_data_block(state_->handle.get(), &block, &size, &offset);
    if (status == ARCHIVE_EOF) return;
    if (status == ARCHIVE_RETRY) continue;
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
      fail<CorruptData>("{}: entry {}: {}", state_->name, state_->entries, reason_of(state_->handle.get()));
    if (offset < expected) fail<CorruptData>("{}: entry {}: content goes backwards", state_->name, state_->entries);
    while (expected < offset) {  // a hole
      const auto zeros = std::size_t(std::min<la_int64_t>(offset - expected, kZeros.size()));
      state_->count_content(zeros);
      if (!take(ByteView(kZeros).first(zeros))) return;
      expected += la_int64_t(zeros);
    }
    state_->count_content(size);
    if (size != 0 && !take({static_cast<const std::byte*>(block), size})) return;
    expected += la_int64_t(size);
  }
}

bool has_archive_name(std::string_view name) {
  constexpr std::array<std::string_view, 10> kEndings = {".zip",  ".tar",    ".tar.gz", ".tgz",     ".tar.bz2",
                                                         ".tbz2", ".tar.xz", ".txz",    ".tar.zst", ".tzst"};
  const auto ends_with = [&](std::string_view ending) {
    return name.size() > ending.size() &&
           std::equal(ending.begin(), ending.end(), name.end() - std::ptrdiff_t(ending.size()),
                      [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? char(b | 0x20) : b); });
  };
  return std::any_of(kEndings.begin(), kEndings.end(), ends_with);
}

}  // namespace varve::codec
