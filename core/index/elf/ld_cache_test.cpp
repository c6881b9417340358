#include "core/index/elf/ld_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::index {
namespace {

// What `ldconfig -p` prints, as name and path.
std::vector<std::pair<std::string, std::string>> listed_by_ldconfig() {
  std::vector<std::pair<std::string, std::string>> lines;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen("/sbin/ldconfig -p 2>/dev/null", "r"), ::pclose);
  char line[8192];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe.get()) != nullptr) {
    std::string_view text(line);
    const auto open = text.find(" ("), arrow = text.find(") => ");
    if (!text.starts_with('\t') || open == std::string_view::npos || arrow == std::string_view::npos) continue;
    auto path = text.substr(arrow + 5);
    path.remove_suffix(1);
    lines.emplace_back(text.substr(1, open - 1), path);
  }
  return lines;
}

TEST(LdCache, ReadsThisMachinesCacheAsLdconfigDoes) {
  const auto bytes = read_file_if_there("/etc/ld.so.cache");
  const auto expected = listed_by_ldconfig();
  if (!bytes || expected.empty()) GTEST_SKIP() << "this machine has no /etc/ld.so.cache or no ldconfig";
  std::vector<std::pair<std::string, std::string>> read;
  for (const auto& entry : parse_ld_cache(as_text(*bytes), "etc/ld.so.cache"))
    read.emplace_back(entry.name, entry.path);
  EXPECT_EQ(read, expected);
}

// Written by ldconfig 2.36 with -c new, compat and old over the same folder.
TEST(LdCache, ReadsAllThreeForms) {
  const auto corpus = std::filesystem::path(VARVE_LD_CACHE_CORPUS);
  const auto read = [&](const char* name) { return parse_ld_cache(as_text(read_file(corpus / name)), name); };
  const LdCacheEntry v3{
      .flags = 0x0303, .name = "libz.so.1", .path = "/lib/glibc-hwcaps/x86-64-v3/libz.so.1", .hwcaps = "x86-64-v3"};
  const LdCacheEntry z{.flags = 0x0303, .name = "libz.so.1", .path = "/lib/libz.so.1", .hwcaps = {}};
  const LdCacheEntry m{.flags = 0x0303, .name = "libm.so.6", .path = "/lib/libm.so.6", .hwcaps = {}};
  EXPECT_THAT(read("new"), ::testing::ElementsAre(v3, z, m));
  EXPECT_THAT(read("compat"), ::testing::ElementsAre(v3, z, m));
  auto unmarked = v3;
  unmarked.hwcaps.clear();  // the old form cannot say so
  EXPECT_THAT(read("old"), ::testing::ElementsAre(unmarked, z, m));
}

TEST(LdCache, RefusesWhatIsCutOffOrLies) {
  EXPECT_THROW(parse_ld_cache("", "c"), CorruptData);
  EXPECT_THROW(parse_ld_cache("glibc-ld.so.cache1.1", "c"), CorruptData);
  EXPECT_THROW(parse_ld_cache("something else", "c"), CorruptData);
  const auto bytes = read_file_if_there("/etc/ld.so.cache");
  if (!bytes) GTEST_SKIP() << "this machine has no /etc/ld.so.cache";
  const std::string whole(as_text(*bytes));
  for (std::size_t length = 0; length < 4096 && length < whole.size(); length += 7)
    EXPECT_THROW(parse_ld_cache(whole.substr(0, length), "c"), CorruptData) << length;
  auto swapped = whole;
  swapped[28] = 3;
  EXPECT_THROW(parse_ld_cache(swapped, "c"), CorruptData);
}

TEST(LdCache, IsWrittenAsItWasReadAndWhatIsNewComesFirst) {
  const auto entry = [](std::string name, std::string path) {
    return LdCacheEntry{.flags = 0x0303, .name = std::move(name), .path = std::move(path), .hwcaps = {}};
  };
  // As ldconfig orders them.
  const std::vector entries = {entry("libz.so.1", "/lib/libz.so.1"), entry("libicu.so.72", "/lib/libicu.so.72"),
                               entry("libicu.so.9", "/lib/libicu.so.9"), entry("libcuda.so.1", "/old/libcuda.so.1"),
                               entry("ld-linux.so.2", "/lib/ld-linux.so.2")};
  EXPECT_EQ(parse_ld_cache(as_text(write_ld_cache(entries, {})), "c"), entries);
  const auto ours = entry("libcuda.so.1", "/new/libcuda.so.1"), between = entry("libicu.so.10", "/new/libicu.so.10"),
             last = entry("a.so", "/new/a.so");
  EXPECT_THAT(parse_ld_cache(as_text(write_ld_cache(entries, {ours, between, last})), "c"),
              ::testing::ElementsAre(entries[0], entries[1], between, entries[2], ours, entries[3], entries[4], last));
  EXPECT_THAT(parse_ld_cache(as_text(write_ld_cache({}, {})), "c"), ::testing::IsEmpty());
}

TEST(LdCache, OneLongNameNamedManyTimesTakesNoGigabytes) {
  std::string cache = "glibc-ld.so.cache1.1";
  const std::uint32_t count = 40'000;
  cache.append(reinterpret_cast<const char*>(&count), 4);
  cache.resize(48);
  const std::uint32_t text = 48 + count * 24;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t entry[6] = {0x0303, text, text, 0, 0, 0};
    cache.append(reinterpret_cast<const char*>(entry), sizeof entry);
  }
  cache.append(4000, 'x');
  cache += '\0';
  EXPECT_THROW(parse_ld_cache(cache, "c"), CorruptData);
}

}  // namespace
}  // namespace varve::index
