#pragma once
// Entries of zip and tar archives (plain, gzip, bzip2, xz, zstd), one after the other. Nothing is ever extracted, so
// names may be hostile.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/bytes.h"

namespace varve::codec {

// What a hostile archive may cost. Beyond a limit next() and read() throw Unsupported.
struct ArchiveLimits {
  std::uint64_t max_entries = 10'000'000;
  std::uint64_t max_content_bytes = std::uint64_t(1) << 40;  // of all entries read, unpacked
  std::uint64_t max_ratio =
      2000;  // unpacked to packed bytes, looked at from kRatioFreeBytes on; deflate ends near 1,032
  static constexpr std::uint64_t kRatioFreeBytes = std::uint64_t(64) << 20;
};

struct ArchiveEntry {
  std::string name;                   // as the archive has it; bytes
  std::optional<std::uint64_t> size;  // absent where the archive tells it only behind the content
  bool regular = false;               // a file with content of its own; not a folder, link or device
  bool encrypted = false;             // its content cannot be read
};

// One pass over one archive. Not shared between threads.
class ArchiveReader {
 public:
  // Throws std::system_error if the file cannot be opened, CorruptData if it is no archive that we read.
  static ArchiveReader open(const std::filesystem::path& path, const ArchiveLimits& limits = {});
  // The bytes must outlive the reader. `name` is for messages.
  static ArchiveReader of_bytes(ByteView bytes, std::string name, const ArchiveLimits& limits = {});
  ArchiveReader(ArchiveReader&&) noexcept;
  ArchiveReader& operator=(ArchiveReader&&) noexcept;
  ~ArchiveReader();

  // False at the end. What was not read of the entry before is passed over. Throws CorruptData when the rest cannot be
  // read.
  bool next(ArchiveEntry& entry);
  // The content of the current entry in blocks, in order, holes as zeros; once per entry. Stops early when `take`
  // returns false. Throws CorruptData when the content is broken; then next() may still work.
  void read(const std::function<bool(ByteView)>& take);

 private:
  struct State;
  explicit ArchiveReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether a file name has the ending of an archive that ArchiveReader is meant for: .zip .tar .tar.gz .tgz .tar.bz2
// .tar.xz .txz .tar.zst.
bool has_archive_name(std::string_view name);

}  // namespace varve::codec
