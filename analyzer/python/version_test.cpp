// A few cases to look at; tests/oracle/test_packaging.py compares thousands with Python's own library.
#include "analyzer/python/version.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace varve::python {
namespace {

Version version(std::string_view text) {
  auto parsed = Version::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(Version());
}

bool version_holds(std::string_view specifier, std::string_view text, bool prereleases = true) {
  const auto set = SpecifierSet::parse(specifier);
  EXPECT_TRUE(set) << specifier;
  return set && set->contains(version(text), prereleases);
}

TEST(VersionTest, OrdersAsPep440) {
  const std::vector<std::string> ascending{"0.dev1",
                                           "1.0.dev1",
                                           "1.0.dev10",
                                           "1.0a1.dev1",
                                           "1.0a1",
                                           "1.0a1.post1",
                                           "1.0a2",
                                           "1.0b1",
                                           "1.0rc1.dev1",
                                           "1.0rc1",
                                           "1.0",
                                           "1.0+abc",
                                           "1.0+abc.5",
                                           "1.0+abd",
                                           "1.0+5",
                                           "1.0+10",
                                           "1.0.post1.dev1",
                                           "1.0.post1",
                                           "1.0.post1+x",
                                           "1.0.1",
                                           "1.1",
                                           "1.9",
                                           "1.10",
                                           "20240101",
                                           "18446744073709551616",
                                           "99999999999999999999999999",
                                           "1!0.1"};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    for (std::size_t j = 0; j < ascending.size(); ++j) {
      EXPECT_EQ(version(ascending[i]) < version(ascending[j]), i < j) << ascending[i] << " " << ascending[j];
      EXPECT_EQ(version(ascending[i]) == version(ascending[j]), i == j) << ascending[i] << " " << ascending[j];
    }
  }
}

TEST(VersionTest, SpellingsAreEqual) {
  for (const auto* const text : {"1.0rc1", "v1.0.RC-1", "1.0.0c1", "1_pre.01", "01.0preview_1", " 1.0rc1 "})
    EXPECT_EQ(version(text), version("1rc1")) << text;
  EXPECT_EQ(version("1.0-1"), version("1.0.post1"));
  EXPECT_EQ(version("1.0+Ubuntu_1-2").normalized(), "1.0+ubuntu.1.2");
  EXPECT_EQ(version("V1!01.2.Alpha-03-4dev_5+007").normalized(), "1!1.2a3.post4.dev5+7");
  EXPECT_EQ(version("1.0.RC1").text(), "1.0.RC1");
}

TEST(VersionTest, RefusesWhatIsNone) {
  for (const auto* const text :
       {"", "x", "1.", "1..2", "1.0-", "1.0+", "1.0+a..b", "!1", "1.0.dev1.post1", "1.0 2", "1.*"})
    EXPECT_FALSE(Version::parse(text)) << text;
  EXPECT_TRUE(Version::parse(std::string(kMaxVersionBytes, '1')));
  EXPECT_FALSE(Version::parse(std::string(kMaxVersionBytes + 1, '1')));
  EXPECT_FALSE(Version::parse(std::string_view("1.0\0", 4)));
}

TEST(SpecifierTest, HoldsAsPep440) {
  EXPECT_TRUE(version_holds("", "1.0"));
  EXPECT_TRUE(version_holds("==1.0", "1.0+local"));
  EXPECT_FALSE(version_holds("==1.0+local", "1.0"));
  EXPECT_TRUE(version_holds("==1.0.*", "1"));
  EXPECT_TRUE(version_holds("==1.0.*", "1.0rc1"));
  EXPECT_FALSE(version_holds("==1.1.*", "1!1.1"));
  EXPECT_FALSE(version_holds("!=1.5.*,>=1", "1.5.3"));
  EXPECT_TRUE(version_holds("~=1.4.5", "1.4.9"));
  EXPECT_FALSE(version_holds("~=1.4.5", "1.5"));
  EXPECT_FALSE(version_holds(">1.0", "1.0.post1"));
  EXPECT_FALSE(version_holds(">1.0", "1.0+local"));
  EXPECT_FALSE(version_holds("<1.0", "1.0rc1"));
  EXPECT_TRUE(version_holds("<1.0rc2", "1.0rc1"));
  EXPECT_TRUE(version_holds("===Foo-1.0", "1.0") == false);
  EXPECT_TRUE(version_holds("===1.0RC1", "1.0rc1"));
  EXPECT_TRUE(version_holds("(>=1.0, <2)", "1.5"));
}

TEST(SpecifierTest, PrereleasesNeedLeave) {
  EXPECT_FALSE(version_holds(">=1.0", "2.0rc1", false));
  EXPECT_TRUE(version_holds(">=1.0", "2.0rc1", true));
  EXPECT_TRUE(version_holds(">=1.0a1", "2.0rc1", false));
  EXPECT_FALSE(version_holds("", "2.0.dev1", false));
  EXPECT_FALSE(version_holds("!=1.0a1", "2.0.dev1", false));
}

TEST(SpecifierTest, RefusesWhatIsNone) {
  for (const auto* const text :
       {"1.0", "=1.0", ">=1.*", "~=1", "==1.0rc1.*", ">=1.0+local", ">=1 <2", "==1. *", "===a b", "<>1"})
    EXPECT_FALSE(SpecifierSet::parse(text)) << text;
  EXPECT_FALSE(SpecifierSet::parse(">=1" + std::string(kMaxSpecifierBytes, ',')));
}

}  // namespace
}  // namespace varve::python
