#pragma once
// Writes tar streams whose bytes follow from the entries alone: not from the locale, the machine's users, the clock or
// a library's version, since a layer is named by its digest. POSIX ustar with pax records (IEEE 1003.1) for what ustar
// cannot say, and only for that. Not libarchive's writer: docs/design/codec.md says why.
#include <cstdint>
#include <functional>
#include <utility>

#include "core/base/bytes.h"
#include "core/codec/tar_parser.h"

namespace varve::codec {

// Not shared between threads.
class TarWriter {
 public:
  using Sink = std::function<void(ByteView)>;
  explicit TarWriter(Sink sink) : sink_(std::move(sink)) {}

  // Of `entry` counts what a tar can say: type, names, mode, owner, mtime, device, size (regular files) and xattrs. A
  // directory gets its trailing "/". Throws Unsupported for what no pax header can carry (a NUL in a name or in an
  // attribute's name), std::logic_error if content of the last entry is missing.
  void begin(const TarEntry& entry);
  // The next bytes of a regular file: in all `size` of them, holes as zeros. std::logic_error for more.
  void content(ByteView bytes);
  // The two zero blocks that end an archive.
  void finish();

 private:
  void end_content();

  Sink sink_;
  std::uint64_t missing_ = 0;  // of the content
  std::size_t padding_ = 0;    // behind it
};

}  // namespace varve::codec
