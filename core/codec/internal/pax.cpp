#include "core/codec/internal/pax.h"

#include <charconv>

#include "core/base/errors.h"
#include "core/base/text/strings.h"
#include "core/codec/internal/posix_acl.h"

namespace varve::codec::internal {
namespace {

constexpr std::string_view kSchilyXattr = "SCHILY.xattr.";
constexpr std::string_view kLibarchiveXattr = "LIBARCHIVE.xattr.";
constexpr std::string_view kSelinux = "security.selinux";

[[noreturn]] void bad_record(const TarPlace& place, std::string_view reason) {
  fail<CorruptData>("{}: extended tar header at {}: {}", place.what, place.stream_offset, reason);
}

std::string url_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && text.size() - i > 2 && hex_digit(lower(text[i + 1])) >= 0 &&
        hex_digit(lower(text[i + 2])) >= 0) {
      out += char(hex_digit(lower(text[i + 1])) * 16 + hex_digit(lower(text[i + 2])));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

// libarchive writes no padding; others do.
std::string base64_decoded(std::string_view text, const TarPlace& place) {
  while (!text.empty() && (text.back() == '=' || text.back() == '\n')) text.remove_suffix(1);
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = base64_digit(c);
    if (digit < 0) bad_record(place, "an attribute value is not base64");
    bits = (bits << 6 | std::uint32_t(digit)) & 0xffffff;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += char(bits >> count & 0xff);
  }
  return out;
}

void add_acl(const PaxRecords& records, std::string_view key, PosixAclKind kind, const TarPlace& place,
             std::map<std::string, std::string>& xattrs) {
  const auto* text = records.find(key);
  if (text == nullptr) return;
  const auto acl = posix_acl_from_text(*text, kind, place);
  if (acl) xattrs.emplace(kind == PosixAclKind::kAccess ? "system.posix_acl_access" : "system.posix_acl_default", *acl);
}

bool is_text_key(std::string_view key) { return key == "path" || key == "linkpath" || key == "GNU.sparse.name"; }

}  // namespace

const std::string* PaxRecords::find(std::string_view key) const {
  const auto at = values.find(key);
  return at == values.end() || at->second.empty() ? nullptr : &at->second;
}

void parse_pax(ByteView data, PaxRecords& into, const TarPlace& place) {
  auto rest = as_text(data);
  while (!rest.empty()) {
    std::uint64_t length = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = std::size_t(end - rest.data());
    if (error != std::errc() || digits == rest.size() || rest[digits] != ' ')
      bad_record(place, "a record has no length");
    if (length > rest.size() || length < digits + 3) bad_record(place, "a record's length is wrong");
    const auto record = rest.substr(digits + 1, length - digits - 1);
    rest.remove_prefix(length);
    const auto equals = record.find('=');
    if (record.back() != '\n' || equals == record.npos || equals == 0) bad_record(place, "a record is not key=value");
    const auto key = record.substr(0, equals);
    const auto value = record.substr(equals + 1, record.size() - equals - 2);
    if (is_text_key(key) && value.find('\0') != value.npos) bad_record(place, "a name holds a NUL byte");
    if (key == "GNU.sparse.offset" || key == "GNU.sparse.numbytes") {
      // The pairs only mean something in their order.
      if ((into.sparse_numbers.size() % 2 == 0) != (key == "GNU.sparse.offset"))
        bad_record(place, "the sparse map is out of order");
      into.sparse_numbers.push_back(parse_pax_number(value, key, place));
    } else {
      into.values.insert_or_assign(std::string(key), std::string(value));
    }
  }
}

std::uint64_t parse_pax_number(std::string_view text, std::string_view key, const TarPlace& place) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > kMaxTarNumber) {
    bad_record(place, fmt::format("{} is not a number in range", key));
  }
  return value;
}

TarTime parse_pax_time(std::string_view text, std::string_view key, const TarPlace& place) {
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  const auto dot = text.find('.');
  const auto whole = text.substr(0, dot);
  auto fraction = dot == text.npos ? std::string_view() : text.substr(dot + 1);
  TarTime time;
  time.seconds = whole.empty() ? 0 : std::int64_t(parse_pax_number(whole, key, place));
  if (whole.empty() && fraction.empty()) bad_record(place, fmt::format("{} is not a time", key));
  if (fraction.find_first_not_of("0123456789") != fraction.npos)
    bad_record(place, fmt::format("{} is not a time", key));
  fraction = fraction.substr(0, 9);  // finer than a nanosecond: cut off
  for (std::size_t i = 0; i < 9; ++i) {
    time.nanoseconds = time.nanoseconds * 10 + std::uint32_t(i < fraction.size() ? fraction[i] - '0' : 0);
  }
  if (!negative) return time;
  time.seconds = -time.seconds;
  if (time.nanoseconds != 0) {
    time.seconds -= 1;
    time.nanoseconds = 1'000'000'000 - time.nanoseconds;
  }
  return time;
}

std::map<std::string, std::string> xattrs_of(const PaxRecords& records, const TarPlace& place) {
  std::map<std::string, std::string> xattrs;
  // emplace() keeps what is there, so the stronger source comes first. An attribute with an empty value is an
  // attribute.
  for (auto at = records.values.lower_bound(kSchilyXattr);
       at != records.values.end() && at->first.starts_with(kSchilyXattr); ++at) {
    xattrs.emplace(at->first.substr(kSchilyXattr.size()), at->second);
  }
  for (auto at = records.values.lower_bound(kLibarchiveXattr);
       at != records.values.end() && at->first.starts_with(kLibarchiveXattr); ++at) {
    xattrs.emplace(url_decoded(std::string_view(at->first).substr(kLibarchiveXattr.size())),
                   base64_decoded(at->second, place));
  }
  if (const auto* label = records.find("RHT.security.selinux")) xattrs.emplace(kSelinux, *label);
  add_acl(records, "SCHILY.acl.access", PosixAclKind::kAccess, place, xattrs);
  add_acl(records, "SCHILY.acl.default", PosixAclKind::kDefault, place, xattrs);
  for (const auto& [name, value] : xattrs) {
    if (name.empty() || name.size() > 255 || name.find('\0') != name.npos)
      bad_record(place, "an attribute has an impossible name");
    if (value.size() > 65'536) bad_record(place, fmt::format("the attribute {} has more than 65536 bytes", name));
  }
  return xattrs;
}

}  // namespace varve::codec::internal
