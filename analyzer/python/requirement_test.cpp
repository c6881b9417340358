// A few cases to look at; tests/oracle/test_packaging.py compares hundreds with Python's own library.
#include "analyzer/python/requirement.h"

#include <gmock/gmock.h>

#include <string>

namespace varve::python {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Environment kLinux{{"python_version", "3.11"},
                         {"python_full_version", "3.11.2"},
                         {"sys_platform", "linux"},
                         {"os_name", "posix"},
                         {"platform_system", "Linux"}};

bool marker_holds(std::string_view text, std::string_view extra = "") {
  const auto marker = Marker::parse(text);
  EXPECT_TRUE(marker) << text;
  return marker && marker->holds(kLinux, extra);
}

TEST(MarkerTest, ComparesVersionsAsVersions) {
  EXPECT_TRUE(marker_holds("python_version >= '3.9'"));
  EXPECT_FALSE(marker_holds("python_version < '3.9'"));
  EXPECT_TRUE(marker_holds("'3.9' < python_full_version"));
  EXPECT_TRUE(marker_holds("python_full_version < '3.11.10'"));
  EXPECT_TRUE(marker_holds("python_version in '3.11 3.12'"));
}

TEST(MarkerTest, TellsExtrasByTheirNormalNames) {
  EXPECT_TRUE(marker_holds("extra == 'Dev_Tools'", "dev.tools"));
  EXPECT_FALSE(marker_holds("extra == 'test'"));
  EXPECT_TRUE(marker_holds("extra != 'test'"));
  EXPECT_THAT(Marker::parse("extra == 'A_b' or 'c' == extra and os_name == 'd'")->extras(), ElementsAre("a-b", "c"));
}

TEST(MarkerTest, AndBindsStrongerThanOr) {
  EXPECT_TRUE(marker_holds("os_name == 'posix' or os_name == 'nt' and os_name == 'x'"));
  EXPECT_FALSE(marker_holds("(os_name == 'posix' or os_name == 'nt') and os_name == 'x'"));
}

TEST(MarkerTest, KnowsTheOldSpellings) {
  EXPECT_TRUE(marker_holds("os.name == 'posix' and sys.platform=='linux'"));
  EXPECT_FALSE(marker_holds("platform.python_implementation == 'PyPy'"));
}

TEST(MarkerTest, DepthIsBounded) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '(') + "os_name == 'nt'" + std::string(depth, ')');
  };
  EXPECT_TRUE(Marker::parse(nested(kMaxMarkerDepth)));
  EXPECT_FALSE(Marker::parse(nested(kMaxMarkerDepth + 1)));
  EXPECT_FALSE(Marker::parse(nested(kMaxMarkerBytes)));
}

TEST(MarkerTest, AMarkerMadeByDefaultHoldsAlways) { EXPECT_TRUE(Marker().holds(kLinux, "")); }

TEST(RequirementTest, ReadsAllParts) {
  const auto read = Requirement::parse("Foo_Bar[B.c, a] (>=1.0,<2) ; python_version < '3' and extra == 'x'");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, "Foo_Bar");
  EXPECT_EQ(read->normalized, "foo-bar");
  EXPECT_THAT(read->extras, ElementsAre("a", "b-c"));
  EXPECT_TRUE(read->specifier.contains(*Version::parse("1.5"), false));
  EXPECT_FALSE(read->specifier.contains(*Version::parse("2.0"), false));
  ASSERT_TRUE(read->marker);
  EXPECT_FALSE(read->marker->holds(kLinux, "x"));
}

TEST(RequirementTest, AUrlMayHoldSemicolons) {
  const auto read = Requirement::parse("a[x] @ https://example.org/a;b.whl#egg=a ; os_name == 'nt'");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->url, "https://example.org/a;b.whl#egg=a");
  ASSERT_TRUE(read->marker);
  EXPECT_EQ(read->marker->text(), "os_name == 'nt'");
  EXPECT_TRUE(read->specifier.empty());
}

TEST(RequirementTest, OfWhatIsNoneTheNameIsStillThere) {
  for (const auto* const text : {"numpy>=1.8.*", "numpy (1.0)", "numpy>=1 <2", "numpy; python_version", "numpy[a"}) {
    EXPECT_FALSE(Requirement::parse(text)) << text;
    EXPECT_EQ(requirement_name(text), "numpy") << text;
  }
  EXPECT_EQ(requirement_name(">=1"), "");
}

TEST(RequirementTest, SectionsOfRequiresTxtBecomeMarkers) {
  const auto read = parse_requires_txt(
      "a\n\n[dev]\nb>=1\n[:python_version<'3']\nc\n[dev:os_name=='nt' or os_name=='posix']\nd; "
      "sys_platform=='linux'\n??\n[empty]\n");
  ASSERT_EQ(read.requirements.size(), 4u);
  EXPECT_FALSE(read.requirements[0].marker);
  EXPECT_TRUE(read.requirements[1].marker->holds(kLinux, "dev"));
  EXPECT_FALSE(read.requirements[1].marker->holds(kLinux, ""));
  EXPECT_FALSE(read.requirements[2].marker->holds(kLinux, ""));
  EXPECT_TRUE(read.requirements[3].marker->holds(kLinux, "dev"));
  EXPECT_FALSE(read.requirements[3].marker->holds(kLinux, ""));
  EXPECT_THAT(read.extras, ElementsAre("dev", "empty"));
  EXPECT_THAT(read.unreadable, ElementsAre("??"));
}

TEST(RequirementTest, LengthIsBounded) {
  EXPECT_FALSE(Requirement::parse("a" + std::string(kMaxRequirementBytes, ' ')));
  EXPECT_THAT(parse_requires_txt("").requirements, IsEmpty());
}

}  // namespace
}  // namespace varve::python
