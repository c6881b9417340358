#include "core/index/elf/ld_cache.h"

#include <algorithm>

#include "core/base/errors.h"

namespace varve::index {
namespace {

constexpr std::string_view kOldMagic = "ld.so-1.7.0";
constexpr std::size_t kOldHeaderBytes = 16;  // magic, padded to 12, and the count
constexpr std::size_t kOldEntryBytes = 12;
constexpr std::string_view kNewMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kNewHeaderBytes = 48;
constexpr std::size_t kNewEntryBytes = 24;
constexpr std::uint8_t kLittleEndian = 2;
constexpr std::uint32_t kExtensionMagic = 0xEAA42174;
constexpr std::uint32_t kHwcapsSection = 1;  // tag of the section that names the glibc-hwcaps subdirectories
constexpr std::uint64_t kHwcapsEntry = 1u << 30,
                        kIsaLevels = 0x3FF;  // of the upper half of an entry's hwcap: it names such a subdirectory
constexpr std::size_t kMaxCacheSections = 64;

class CacheReader {
 public:
  CacheReader(std::string_view bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  template <typename Number>
  Number number(std::uint64_t at) const {
    if (at > bytes_.size() || bytes_.size() - at < sizeof(Number))
      fail<CorruptData>("{}: cut off at byte {}", what_, bytes_.size());
    return load_le<Number>(reinterpret_cast<const std::byte*>(bytes_.data()) + at);
  }
  std::string text(std::uint64_t at) {
    if (at >= bytes_.size()) fail<CorruptData>("{}: a name at byte {} of {}", what_, at, bytes_.size());
    const auto rest = bytes_.substr(at, kMaxLdCacheText + 1);
    const auto end = rest.find('\0');
    if (end == std::string_view::npos) fail<CorruptData>("{}: a name at byte {} has no end", what_, at);
    names_bytes_ += end;
    if (names_bytes_ > kMaxLdCacheNames)
      fail<CorruptData>("{}: its names take more than {} bytes", what_, kMaxLdCacheNames);
    return std::string(rest.substr(0, end));
  }
  // Entries whose bytes are not there must not make us reserve memory for them.
  std::uint64_t count(std::uint64_t at, std::uint64_t entries_at, std::uint64_t entry_bytes) const {
    const auto entries = number<std::uint32_t>(at);
    if (entries_at > bytes_.size() || entries > (bytes_.size() - entries_at) / entry_bytes)
      fail<CorruptData>("{}: {} entries do not fit in {} bytes", what_, entries, bytes_.size());
    return entries;
  }
  std::string_view bytes() const { return bytes_; }
  std::string_view what() const { return what_; }

 private:
  std::string_view bytes_, what_;
  std::size_t names_bytes_ = 0;
};

// `base`: where the new format begins. Names count from there, the extension and its sections from the start of the
// file.
std::vector<std::string> hwcaps_names(CacheReader& in, std::uint64_t base) {
  std::vector<std::string> names;
  const std::uint64_t extension = in.number<std::uint32_t>(base + 32);
  if (extension == 0) return names;
  if (in.number<std::uint32_t>(extension) != kExtensionMagic)
    fail<CorruptData>("{}: no extension at byte {}", in.what(), extension);
  const auto sections = in.count(extension + 4, extension + 8, 16);
  if (sections > kMaxCacheSections) fail<CorruptData>("{}: {} extension sections", in.what(), sections);
  for (std::uint64_t i = 0; i < sections; ++i) {
    const auto section = extension + 8 + i * 16;
    if (in.number<std::uint32_t>(section) != kHwcapsSection) continue;
    const std::uint64_t at = in.number<std::uint32_t>(section + 8), bytes = in.number<std::uint32_t>(section + 12);
    if (at > in.bytes().size() || bytes > in.bytes().size() - at || bytes / 4 > kMaxCacheSections)
      fail<CorruptData>("{}: hwcaps section outside the file", in.what());
    for (std::uint64_t j = 0; j < bytes / 4; ++j) names.push_back(in.text(base + in.number<std::uint32_t>(at + j * 4)));
  }
  return names;
}

std::vector<LdCacheEntry> parse_new(std::string_view cache, std::uint64_t base, std::string_view what) {
  CacheReader in(cache, what);
  const auto byte_order = in.number<std::uint8_t>(base + 28);
  if ((byte_order & 3) == 3 || (byte_order & 3) == 1)
    fail<CorruptData>("{}: made for a machine of the other byte order", what);
  const auto count = in.count(base + 20, base + kNewHeaderBytes, kNewEntryBytes);
  const auto hwcaps = hwcaps_names(in, base);
  std::vector<LdCacheEntry> entries;
  entries.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto at = base + kNewHeaderBytes + i * kNewEntryBytes;
    LdCacheEntry entry{.flags = in.number<std::uint32_t>(at),
                       .name = in.text(base + in.number<std::uint32_t>(at + 4)),
                       .path = in.text(base + in.number<std::uint32_t>(at + 8)),
                       .hwcaps = {}};
    const auto hwcap = in.number<std::uint64_t>(at + 16);
    if (((hwcap >> 32) & ~kIsaLevels) == kHwcapsEntry) {
      const auto name = std::uint32_t(hwcap);
      if (name >= hwcaps.size()) fail<CorruptData>("{}: an entry for hwcaps {} of {}", what, name, hwcaps.size());
      entry.hwcaps = hwcaps[name];
    } else {
      entry.legacy_hwcap = hwcap != 0;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<LdCacheEntry> parse_old(std::string_view cache, std::uint64_t count, std::string_view what) {
  CacheReader in(cache, what);
  const auto strings = kOldHeaderBytes + count * kOldEntryBytes;  // offsets count from here
  std::vector<LdCacheEntry> entries;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto at = kOldHeaderBytes + i * kOldEntryBytes;
    entries.push_back({.flags = in.number<std::uint32_t>(at),
                       .name = in.text(strings + in.number<std::uint32_t>(at + 4)),
                       .path = in.text(strings + in.number<std::uint32_t>(at + 8)),
                       .hwcaps = {}});
  }
  return entries;
}

// How names are ordered, the greatest first (elf/dl-cache.c, _dl_cache_libcmp): a digit is greater than all else, and
// digits next to each other are one number.
bool is_greater(std::string_view a, std::string_view b) {
  const auto is_digit = [](std::string_view text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; };
  const auto take_number = [&](std::string_view& text) {
    std::uint64_t number = 0;
    for (; is_digit(text); text.remove_prefix(1)) number = number * 10 + std::uint64_t(text[0] - '0');
    return number;
  };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a) != is_digit(b)) return is_digit(a);
    if (is_digit(a)) {
      const auto left = take_number(a), right = take_number(b);
      if (left != right) return left > right;
    } else {
      if (a[0] != b[0]) return a[0] > b[0];
      a.remove_prefix(1), b.remove_prefix(1);
    }
  }
  return !a.empty();
}

}  // namespace

Bytes write_ld_cache(std::vector<LdCacheEntry> entries, const std::vector<LdCacheEntry>& first) {
  for (const auto& entry : first)
    entries.insert(
        std::ranges::find_if(entries, [&](const auto& there) { return !is_greater(there.name, entry.name); }), entry);
  std::string texts;
  const auto texts_at = kNewHeaderBytes + entries.size() * kNewEntryBytes;
  Bytes records;
  const auto append_text = [&](const std::string& text) {
    append_le(records, std::uint32_t(texts_at + texts.size()));
    texts += text;
    texts += '\0';
  };
  for (const auto& entry : entries) {
    append_le(records, entry.flags);
    append_text(entry.name);
    append_text(entry.path);
    append_le(records, std::uint32_t(0));  // the kernel's version, of which loaders since 2.36 ask nothing
    append_le(records, std::uint64_t(0));  // hwcap
  }
  auto cache = to_bytes(as_bytes(kNewMagic));
  append_le(cache, std::uint32_t(entries.size()));
  append_le(cache, std::uint32_t(texts.size()));
  append_le(cache, kLittleEndian);
  cache.resize(kNewHeaderBytes);
  append(cache, records);
  append(cache, as_bytes(texts));
  return cache;
}

std::vector<LdCacheEntry> parse_ld_cache(std::string_view cache, std::string_view what) {
  if (cache.size() > kMaxLdCacheBytes)
    fail<CorruptData>("{}: {} bytes, the limit is {}", what, cache.size(), kMaxLdCacheBytes);
  if (cache.starts_with(kNewMagic)) return parse_new(cache, 0, what);
  if (!cache.starts_with(kOldMagic)) fail<CorruptData>("{}: does not begin as a cache of ldconfig does", what);
  const auto count = CacheReader(cache, what).count(12, kOldHeaderBytes, kOldEntryBytes);
  const auto behind = (kOldHeaderBytes + count * kOldEntryBytes + 7) / 8 * 8;
  if (behind < cache.size() && cache.substr(behind).starts_with(kNewMagic)) return parse_new(cache, behind, what);
  return parse_old(cache, count, what);
}

}  // namespace varve::index
