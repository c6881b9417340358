#pragma once
// Writes tar streams whose bytes follow from the entries alone: not from the locale, the machine's users, the clock or a library's version, since a layer is named by
// its digest. POSIX ustar with pax records (IEEE 1003.1) for what ustar cannot say, and only for that. Not libarchive's writer: docs/relayering.md says why.
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/codec/tar_parser.h"

namespace varve::codec {

// A piece of a sparse file that is stored.
struct StoredRun {
  std::uint64_t file_offset = 0;
  std::uint64_t length = 0;
};

// Not shared between threads.
class TarWriter {
 public:
  using Sink = std::function<void(ByteView)>;
  explicit TarWriter(Sink sink) : sink_(std::move(sink)) {}

  // Of `entry` counts what a tar can say: type, names, mode, owner, mtime, device, size (regular files) and xattrs. A directory gets its trailing "/".
  // Throws Unsupported for what no pax header can carry (a NUL in a name or in an attribute's name), std::logic_error if content of the last entry is missing.
  void begin(const TarEntry& entry);
  // A regular file of which only these runs are stored, in order: pax sparse format 1.0 of GNU tar. For holes that are too large to be written as zeros.
  void begin_sparse(const TarEntry& entry, const std::vector<StoredRun>& runs);
  // The next bytes of a regular file: in all `size` of them, or what the runs hold back to back. std::logic_error for more.
  void content(ByteView bytes);
  // The two zero blocks that end an archive.
  void finish();

 private:
  void write_entry(const TarEntry& entry, std::uint64_t stored_bytes, std::string_view sparse_name, Bytes&& records);
  void end_content();

  Sink sink_;
  std::uint64_t missing_ = 0;  // of the content
  std::size_t padding_ = 0;    // behind it
};

}  // namespace varve::codec
