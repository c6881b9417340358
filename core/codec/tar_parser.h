#pragma once
// Streaming tar reader that knows where everything lies. Formats: POSIX ustar and pax (IEEE 1003.1 pax "Interchange
// Format"), GNU tar (long names, base-256, sparse 0.0, 0.1, 1.0 and old), as OCI layers use them (image-spec layer.md).
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/files/file_attributes.h"

namespace varve::codec {

inline constexpr std::uint64_t kMaxPaxBytes = 8 * 1024 * 1024;  // one extended header, long name or sparse map
inline constexpr std::uint64_t kMaxTarEntries = 10'000'000;     // of one layer

struct TarTime {
  std::int64_t seconds = 0;       // may be negative
  std::uint32_t nanoseconds = 0;  // counts up from seconds
};

// Not FileAttributes: ids may be wider here than any file can have them.
struct TarEntry {
  FileType type = FileType::kRegular;
  std::string name;        // raw bytes as in the archive, long forms resolved; not normalised
  std::string link_name;   // raw bytes; target of a symlink or hard link
  std::uint32_t mode = 0;  // 07777 bits
  std::uint64_t uid = 0;
  std::uint64_t gid = 0;
  std::int64_t mtime_seconds = 0;  // may be negative
  std::uint32_t mtime_nanoseconds = 0;
  std::optional<TarTime> access_time, change_time;  // of pax headers only
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  std::uint64_t size = 0;                  // of the file as read, holes included; 0 for all but regular files
  std::uint64_t header_stream_offset = 0;  // first block of this entry, extended headers included
  std::uint64_t data_stream_offset = 0;    // first content byte
  std::uint64_t data_stream_length = 0;    // stored bytes, without padding
  bool sparse = false;
  std::vector<ContentRun> runs;               // filled for every non-empty regular file; one run if not sparse
  std::map<std::string, std::string> xattrs;  // full name ("user.x", "security.capability") -> raw value
};

class TarListener {
 public:
  virtual ~TarListener() = default;
  // For sparse files of pax format 1.0 the call comes after the map in the data was read.
  virtual void on_entry(TarEntry entry) = 0;
  // Stored content of the last entry, in order, without padding (for sparse files: the stored runs back to back).
  virtual void on_content(ByteView bytes) = 0;
  virtual void on_entry_end() = 0;
};

// Push parser with bounded memory. After the end-of-archive blocks everything is ignored, as readers of layers do. A
// tar that stops between entries without end blocks is accepted. Throws CorruptData naming `what`, the stream offset
// and the reason; Unsupported for multi-volume and similar entries, and beyond the limits.
class TarParser {
 public:
  TarParser(std::string what, TarListener& listener);
  ~TarParser();
  void feed(ByteView stream);
  void finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::codec
