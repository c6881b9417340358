#pragma once
// /etc/ld.so.cache as ldconfig writes it: which file it found for which library name. Formats "glibc-ld.so.cache1.1"
// (2.2 and later, glibc-hwcaps since 2.33), alone or behind "ld.so-1.7.0", and the latter alone (elf/cache.c,
// sysdeps/generic/dl-cache.h of glibc 2.36).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"

namespace varve::index {

inline constexpr std::size_t kMaxLdCacheBytes = 16u << 20;  // a big image has 100 kB
inline constexpr std::size_t kMaxLdCacheNames =
    64u << 20;  // bytes of all names and paths together: a small file can name one long text many times
inline constexpr std::size_t kMaxLdCacheText = 4096;  // of one name or path, as PATH_MAX

// What kind of machine and ABI (sysdeps/generic/ldconfig.h): libc6,x86-64 and libc6,AArch64.
inline constexpr std::uint32_t kLdCacheX86_64 = 0x0303, kLdCacheAArch64 = 0x0a03;

struct LdCacheEntry {
  std::uint32_t flags = 0;    // as above; 0x0003 libc6
  std::string name;           // "libz.so.1"
  std::string path;           // "/lib/x86_64-linux-gnu/libz.so.1"
  std::string hwcaps;         // subdirectory of glibc-hwcaps that the entry is for, "x86-64-v3"; "" = any machine
  bool legacy_hwcap = false;  // for some machines only, in the way of before 2.33
  bool operator==(const LdCacheEntry&) const = default;
};

// In the order of the file. Throws CorruptData naming `what`: no cache, cut off, or offsets outside of it.
std::vector<LdCacheEntry> parse_ld_cache(std::string_view cache, std::string_view what);

// The cache with these entries, in the new form alone; those of `first` in front of what has their names. `entries` are
// in the order in which parse_ld_cache() gave them: loaders look for a name by halves. None is for certain machines
// (hwcaps, legacy_hwcap).
Bytes write_ld_cache(std::vector<LdCacheEntry> entries, const std::vector<LdCacheEntry>& first);

}  // namespace varve::index
