#pragma once
// Names of libraries in a file whose dynamic section is not known yet.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"

namespace varve::index {

// Strings that look like a library's name or a path, kept until the dynamic section says which of them it means. Of
// more than 4 MiB of them none is kept.
class TextSearch {
 public:
  static constexpr std::size_t kMaxTextBytes =
      32 * 1024;  // a string that is kept because it looks like a library's name or path; TensorFlow has one of 16 kB

  static constexpr std::size_t kJointBytes = 2 * kMaxTextBytes;  // looked at again with the next piece

  // Of these parts of the file; none: of nothing more.
  void look_in(std::vector<ByteRange> ranges) { ranges_ = std::move(ranges); }
  bool looks_somewhere() const { return !ranges_.empty(); }
  // How much of so many bytes is to be given to look_at() together.
  std::uint64_t part_at(std::uint64_t offset, std::uint64_t length) const;
  // The file from `offset` on, in whole or outside of what is looked in. `before`: what came just before it.
  void look_at(ByteView before, ByteView content, std::uint64_t offset);
  // The string there, or the end of one; absent if none was kept.
  std::optional<std::string> find(std::uint64_t file_offset) const;

 private:
  void look_at(ByteView content, std::uint64_t offset);
  std::vector<ByteRange> ranges_;
  bool too_much_ = false;
  std::map<std::uint64_t, std::string> texts_;  // by where they begin
  std::size_t text_bytes_ = 0;
};

}  // namespace varve::index
