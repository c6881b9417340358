#include "analyzer/python/name.h"

#include <gmock/gmock.h>

namespace varve::python {
namespace {

TEST(NameTest, NormalizesAsPep503) {
  EXPECT_EQ(normalize_name("Foo._-Bar"), "foo-bar");
  EXPECT_EQ(normalize_name("zope.interface"), "zope-interface");
  EXPECT_EQ(normalize_name("a"), "a");
  EXPECT_EQ(normalize_name("-a-"), "-a-");
  EXPECT_EQ(normalize_name(""), "");
}

TEST(NameTest, KnowsNames) {
  for (const auto* const name : {"a", "a9", "9a", "A.b-c_d", "a--b"}) EXPECT_TRUE(is_name(name)) << name;
  for (const auto* const name : {"", "-a", "a-", "a b", "\xC3\xA9", "a[b]"}) EXPECT_FALSE(is_name(name)) << name;
}

TEST(NameTest, ReadsWhatRecordsAreCalled) {
  const struct {
    const char *file, *name, *version, *python, *platform;
  } kCases[] = {
      {"numpy-1.26.4.dist-info", "numpy", "1.26.4", "", ""},
      {"zope.interface-6.1.dist-info", "zope.interface", "6.1", "", ""},
      {"usr/lib/python3/dist-packages/Pillow-9.4.0.egg-info/", "Pillow", "9.4.0", "", ""},
      {"foo_bar-1.0-py3.9.egg-info", "foo_bar", "1.0", "3.9", ""},
      {"foo-1.0-py3.9-linux-x86_64.egg", "foo", "1.0", "3.9", "linux-x86_64"},
      {"python-python-1.0-py2.7.egg", "python-python", "1.0", "2.7", ""},
      {"foo.egg-info", "foo", "", "", ""},
      {"jupyter-client-8.0.dist-info", "jupyter-client", "8.0", "", ""},
      {"torch-2.1.0+cu118.dist-info", "torch", "2.1.0+cu118", "", ""},
      {"foo-dev.dist-info", "foo", "dev", "", ""},
  };
  for (const auto& expected : kCases) {
    const auto read = parse_record_name(expected.file);
    ASSERT_TRUE(read) << expected.file;
    EXPECT_EQ(read->name, expected.name) << expected.file;
    EXPECT_EQ(read->version, expected.version) << expected.file;
    EXPECT_EQ(read->python, expected.python) << expected.file;
    EXPECT_EQ(read->platform, expected.platform) << expected.file;
  }
  for (const auto* const file : {"numpy", ".dist-info", "numpy.libs", "numpy-1.0.data", "", "/", "-1.0.egg-info"})
    EXPECT_FALSE(parse_record_name(file)) << file;
}

}  // namespace
}  // namespace varve::python
