#include "core/codec/internal/posix_acl.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <vector>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/strings.h"

namespace varve::codec::internal {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kNoId = 0xffffffff;
constexpr std::uint16_t kUserObj = 0x01, kUser = 0x02, kGroupObj = 0x04, kGroup = 0x08, kMask = 0x10, kOther = 0x20;

struct AclEntry {
  std::uint16_t tag = 0;
  std::uint16_t permissions = 0;
  std::uint32_t id = kNoId;
};

[[noreturn]] void bad_acl(const TarPlace& place, std::string_view entry) {
  fail<CorruptData>("{}: extended tar header at {}: '{}' is not an ACL entry", place.what, place.stream_offset, entry);
}

std::uint16_t parse_permissions(std::string_view text, const TarPlace& place, std::string_view entry) {
  std::uint16_t permissions = 0;
  for (const char c : text) {
    if (c == 'r')
      permissions |= 4;
    else if (c == 'w')
      permissions |= 2;
    else if (c == 'x')
      permissions |= 1;
    else if (c != '-')
      bad_acl(place, entry);
  }
  return permissions;
}

std::optional<std::uint32_t> parse_id(std::string_view text) {
  if (text == "root") return 0;
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || id == kNoId) return std::nullopt;
  return id;
}

std::uint16_t parse_tag(std::string_view word, bool named, const TarPlace& place, std::string_view entry) {
  if (word == "user" || word == "u") return named ? kUser : kUserObj;
  if (word == "group" || word == "g") return named ? kGroup : kGroupObj;
  if (!named && (word == "mask" || word == "m")) return kMask;
  if (!named && (word == "other" || word == "o")) return kOther;
  bad_acl(place, entry);
}

// Absent if the entry names somebody who has no number.
std::optional<AclEntry> parse_entry(std::string_view text, const TarPlace& place) {
  text = trimmed(text.substr(0, text.find('#')), kBlanks);
  auto fields = split(text, ":");
  for (auto& field : fields) field = trimmed(field, kBlanks);
  const bool short_form = fields.size() == 2;  // "mask:rwx" and "other:rwx"
  if (fields.size() < 2 || fields.size() > 4) bad_acl(place, text);
  const auto name = short_form ? std::string_view() : fields[1];
  AclEntry entry;
  entry.tag = parse_tag(fields[0], !name.empty(), place, text);
  entry.permissions = parse_permissions(fields[short_form ? 1 : 2], place, text);
  if (name.empty()) return entry;
  auto id = fields.size() == 4 ? parse_id(fields[3]) : std::nullopt;
  if (!id) id = parse_id(name);
  if (!id) {
    log::warn("{}: extended tar header at {}: the ACL entry '{}' has no number; the ACL is left out", place.what,
              place.stream_offset, text);
    return std::nullopt;
  }
  entry.id = *id;
  return entry;
}

// The kernel's rules (posix_acl_valid): one owner, group and others entry each, and a mask if anybody is named.
void check_complete(const std::vector<AclEntry>& entries, const TarPlace& place) {
  const auto count = [&](std::uint16_t tag) {
    return std::count_if(entries.begin(), entries.end(), [&](const AclEntry& e) { return e.tag == tag; });
  };
  const bool named = count(kUser) + count(kGroup) > 0;
  if (count(kUserObj) != 1 || count(kGroupObj) != 1 || count(kOther) != 1 || count(kMask) > 1 ||
      (named && count(kMask) == 0)) {
    fail<CorruptData>("{}: extended tar header at {}: the ACL is not complete", place.what, place.stream_offset);
  }
}

}  // namespace

std::optional<std::string> posix_acl_from_text(std::string_view text, PosixAclKind kind, const TarPlace& place) {
  std::vector<AclEntry> entries;
  for (auto part : split(text, ",\n")) {
    part = trimmed(part, kBlanks);
    if (part.empty() || part.front() == '#') continue;
    const auto entry = parse_entry(part, place);
    if (!entry) return std::nullopt;
    entries.push_back(*entry);
  }
  check_complete(entries, place);
  if (kind == PosixAclKind::kAccess && entries.size() == 3) return std::nullopt;  // the mode says the same
  std::sort(entries.begin(), entries.end(),
            [](const AclEntry& a, const AclEntry& b) { return std::tie(a.tag, a.id) < std::tie(b.tag, b.id); });
  Bytes out;
  append_le(out, kVersion);
  for (const auto& entry : entries) {
    append_le(out, entry.tag);
    append_le(out, entry.permissions);
    append_le(out, entry.id);
  }
  return std::string(as_text(out));
}

}  // namespace varve::codec::internal
