#include "analyzer/python/entry_points.h"

#include <gmock/gmock.h>

namespace varve::python {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(EntryPointsTest, ReadsGroupsTargetsAndExtras) {
  const auto read = parse_entry_points(
      "# a comment\n[console_scripts]\njupyter = jupyter_core.command:main\r\npip3.11=pip._internal.cli.main:main\n\n"
      "[ gui_scripts ]\nshow-it = a.b : c.d [ gui , png ]\n; another\n[plugins]\nbare = some.module\nwith spaces = "
      "x:y\n");
  EXPECT_THAT(read.unreadable, IsEmpty());
  ASSERT_THAT(read.entries, SizeIs(5));
  EXPECT_EQ(read.entries[0].group, "console_scripts");
  EXPECT_EQ(read.entries[0].name, "jupyter");
  EXPECT_EQ(read.entries[0].target(), "jupyter_core.command:main");
  EXPECT_EQ(read.entries[1].name, "pip3.11");
  EXPECT_EQ(read.entries[2].group, "gui_scripts");
  EXPECT_EQ(read.entries[2].target(), "a.b:c.d");
  EXPECT_THAT(read.entries[2].extras, ElementsAre("gui", "png"));
  EXPECT_EQ(read.entries[3].target(), "some.module");
  EXPECT_EQ(read.entries[4].name, "with spaces");
}

TEST(EntryPointsTest, GivesBackWhatCannotBeRead) {
  const auto read = parse_entry_points(
      "early = a:b\n[g]\nno target\n= a:b\nx = \ny = a:\nz = a..b:c\nw = a:b]\nfine = a\n[]\nlost = a:b\n");
  ASSERT_THAT(read.entries, SizeIs(1));
  EXPECT_EQ(read.entries[0].name, "fine");
  EXPECT_THAT(read.unreadable, ElementsAre("early = a:b", "no target", "= a:b", "x =", "y = a:", "z = a..b:c",
                                           "w = a:b]", "lost = a:b"));
}

}  // namespace
}  // namespace varve::python
