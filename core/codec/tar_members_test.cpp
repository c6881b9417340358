#include "core/codec/tar_members.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/base/errors.h"
#include "testing/tar_support.h"

namespace varve::codec {
namespace {

using test::HeaderFields;
using test::TarBuilder;

std::map<std::string, TarMember> find(ByteView tar) {
  const auto read = [&](std::uint64_t offset, std::span<std::byte> into) {
    ASSERT_LE(offset + into.size(), tar.size());
    std::ranges::copy(tar.subspan(offset, into.size()), into.begin());
  };
  return find_tar_members(tar.size(), read, "x.tar");
}

std::string content(ByteView tar, const TarMember& member) {
  return std::string(as_text(tar.subspan(member.offset, member.size)));
}

TEST(TarMembersTest, SaysWhereFilesLieAndFollowsLinks) {
  TarBuilder tar;
  tar.file("./a", "first").header({.name = "dir/", .typeflag = '5'}).file("dir/layer.tar", "layer");
  tar.header({.name = "other/layer.tar", .typeflag = '2', .link_name = "../dir/layer.tar"});
  tar.header({.name = "hard", .typeflag = '1', .link_name = "other/layer.tar"});
  tar.header({.name = "loop", .typeflag = '2', .link_name = "loop"});
  tar.header({.name = "dangling", .typeflag = '2', .link_name = "../../etc/passwd"});
  tar.file("a", "second, which counts").end();
  const auto members = find(tar.bytes());
  EXPECT_EQ(members.size(), 4u);
  EXPECT_EQ(content(tar.bytes(), members.at("a")), "second, which counts");
  for (const auto* name : {"dir/layer.tar", "other/layer.tar", "hard"})
    EXPECT_EQ(content(tar.bytes(), members.at(name)), "layer") << name;
}

TEST(TarMembersTest, ReadsLongNamesAndSizesOfExtendedHeaders) {
  const std::string name(200, 'n');
  TarBuilder tar;
  tar.pax({{"path", name}, {"size", "3"}}).header({.name = "short", .size = 0}).data("pax");
  tar.long_name('L', name + "/2").file("short", "gnu").end();
  const auto members = find(tar.bytes());
  EXPECT_EQ(content(tar.bytes(), members.at(name)), "pax");
  EXPECT_EQ(content(tar.bytes(), members.at(name + "/2")), "gnu");
}

TEST(TarMembersTest, RefusesWhatIsDamaged) {
  TarBuilder good;
  good.file("a", "content").end();
  EXPECT_THROW(find(good.bytes().first(100)), CorruptData);
  EXPECT_THROW(find(good.bytes().first(512)), CorruptData) << "it ends before the content";
  Bytes broken(good.bytes().begin(), good.bytes().end());
  broken[0] ^= std::byte(1);
  EXPECT_THROW(find(broken), CorruptData);
  TarBuilder huge;
  huge.header({.name = "a", .size = 1ull << 40}).end();
  EXPECT_THROW(find(huge.bytes()), CorruptData);
}

}  // namespace
}  // namespace varve::codec
