#include "core/index/elf/internal/device_code_search.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/index/elf/internal/likely_places.h"

namespace varve::index {
namespace {

constexpr std::size_t kMaxFoundNames = 1024;  // places where the name of a section with device code was seen

// Magic 0xBA55ED50, version 1, header of 16 bytes.
constexpr std::string_view kFatbinHeader("\x50\xED\x55\xBA\x01\x00\x10\x00", 8);
// With the NUL that ends them in a string table.
constexpr std::array<std::string_view, 3> kDeviceSections = {std::string_view(".nv_fatbin\0", 11),
                                                             std::string_view("__nv_relfatbin\0", 15),
                                                             std::string_view(".nvFatBinSegment\0", 17)};

}  // namespace

void DeviceCodeSearch::look_at(ByteView before, ByteView content, std::uint64_t offset) {
  if (found_container_) return;
  if (!before.empty()) {
    auto joint = to_bytes(before.last(std::min(before.size(), kJointBytes)));
    const auto begin = offset - joint.size();
    append(joint, content.first(std::min(content.size(), kJointBytes)));
    look_at(joint, begin);
  }
  look_at(content, offset);
}

void DeviceCodeSearch::look_at(ByteView content, std::uint64_t offset) {
  // Of the names the "v_" and "vF".
  const auto may_match = [](Vector a, Vector b) {
    return Vector(((a == 0x50) & (b == 0xED)) | ((a == 'v') & ((b == '_') | (b == 'F'))));
  };
  for_likely_places(content, may_match, [&](std::size_t at) {
    if (content[at] == std::byte(0x50)) {
      if (as_text(content.subspan(at)).starts_with(kFatbinHeader)) found_container_ = true;
      return found_container_;
    }
    if (content[at] != std::byte('v')) return false;
    for (const auto name : kDeviceSections) {
      const auto begin = at - std::min(at, name.find('v'));
      if (as_text(content.subspan(begin)).starts_with(name) && names_.size() < kMaxFoundNames)
        names_.insert(offset + begin);
    }
    return false;
  });
}

}  // namespace varve::index
