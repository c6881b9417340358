#include "core/index/elf/internal/text_search.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/index/elf/internal/likely_places.h"

namespace varve::index {
namespace {

constexpr std::size_t kMaxAllTextBytes = 4 * 1024 * 1024;
constexpr std::array<std::string_view, 3> kTextNeedles = {".so", "$OR", "/li"};

bool is_printable(std::byte byte) { return byte >= std::byte(0x20) && byte != std::byte(0x7F); }

}  // namespace

void TextSearch::look_at(ByteView before, ByteView content, std::uint64_t offset) {
  if (too_much_ || std::ranges::none_of(ranges_, [&](const ByteRange& range) { return range.contains(offset); }))
    return;
  auto joint = to_bytes(before.last(std::min(before.size(), kJointBytes)));
  const auto begin = offset - joint.size();
  append(joint, content.first(std::min(content.size(), kJointBytes)));
  look_at(joint, begin);
  look_at(content, offset);
}

std::uint64_t TextSearch::part_at(std::uint64_t offset, std::uint64_t length) const {
  for (const auto& range : ranges_) {
    if (range.offset > offset) length = std::min(length, range.offset - offset);
    if (range.contains(offset)) length = std::min(length, range.end() - offset);
  }
  return length;
}

std::optional<std::string> TextSearch::find(std::uint64_t file_offset) const {
  auto found = texts_.upper_bound(file_offset);
  if (found == texts_.begin()) return std::nullopt;
  --found;
  const auto inside = file_offset - found->first;
  if (inside >= found->second.size()) return std::nullopt;
  return found->second.substr(inside);
}

void TextSearch::look_at(ByteView content, std::uint64_t offset) {
  const auto may_match = [](Vector a, Vector b) {
    return Vector(((a == '.') & (b == 's')) | ((a == '$') & (b == 'O')) | ((a == '/') & (b == 'l')));
  };
  std::size_t seen = 0;  // a run of printable bytes is looked at once
  for_likely_places(content, may_match, [&](std::size_t at) {
    if (at < seen) return false;
    const auto here = as_text(content.subspan(at, std::min<std::size_t>(3, content.size() - at)));
    if (std::ranges::find(kTextNeedles, here) == kTextNeedles.end()) return false;
    auto begin = at;
    while (begin > 0 && is_printable(content[begin - 1]) && at - begin < kMaxTextBytes) --begin;
    auto end = at;
    while (end < content.size() && is_printable(content[end])) ++end;
    seen = end;
    if (begin == 0 || content[begin - 1] != std::byte(0) || end == content.size() || content[end] != std::byte(0) ||
        end - begin > kMaxTextBytes)
      return false;
    const auto [found, is_new] = texts_.try_emplace(offset + begin, as_text(content.subspan(begin, end - begin)));
    if (is_new) text_bytes_ += end - begin + 64;
    too_much_ = text_bytes_ > kMaxAllTextBytes;
    if (too_much_) texts_.clear();
    return too_much_;
  });
}

}  // namespace varve::index
