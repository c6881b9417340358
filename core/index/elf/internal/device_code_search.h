#pragma once
// Device code in a file whose sections are not known yet.
#include <cstdint>
#include <set>

#include "core/base/bytes.h"

namespace varve::index {

// Fatbin containers, and where the names of sections with device code stand: whether one is a section's name is known
// only when the section headers have come by.
class DeviceCodeSearch {
 public:
  static constexpr std::size_t kJointBytes = 16;  // looked at again with the next piece

  // The file from `offset` on. `before`: what came just before it, kJointBytes or more, less only at the file's begin.
  void look_at(ByteView before, ByteView content, std::uint64_t offset);
  bool found_container() const { return found_container_; }
  bool has_name_at(std::uint64_t file_offset) const { return names_.contains(file_offset); }
  bool has_names() const { return !names_.empty(); }

 private:
  void look_at(ByteView content, std::uint64_t offset);
  bool found_container_ = false;
  std::set<std::uint64_t> names_;  // where they begin
};

}  // namespace varve::index
