#include "analyzer/python/core_metadata.h"

#include <gmock/gmock.h>

#include <string>

namespace varve::python {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::string_view kWhole =
    "Metadata-Version: 2.1\r\n"
    "Name: Flask-Thing\r\n"
    "Version: 3.0.0\r\n"
    "Summary: A thing\r\n"
    "  told in two lines\r\n"
    "License: BSD 3-Clause License\r\n"
    "        \r\n"
    "        Redistribution: permitted\r\n"
    "requires-python: >=3.8\r\n"
    "Requires-Dist: Werkzeug >=3.0.0\r\n"
    "Requires-Dist: importlib-metadata >=3.6.0 ;\r\n"
    "\tpython_version < \"3.10\"\r\n"
    "Requires-Dist: old>=1.*\r\n"
    "Provides-Extra: async\r\n"
    "Provides-Extra: dotenv\r\n"
    "Dynamic: Requires-Dist\r\n"
    "\r\n"
    "Name: of the description\r\n"
    "Requires-Dist: nothing\r\n";

TEST(CoreMetadataTest, ReadsAWholeFile) {
  const auto read = parse_core_metadata(kWhole);
  EXPECT_EQ(read.metadata_version, "2.1");
  EXPECT_EQ(read.name, "Flask-Thing");
  EXPECT_EQ(read.version, "3.0.0");
  EXPECT_EQ(read.summary, "A thing");
  EXPECT_EQ(read.license, "BSD 3-Clause License");
  EXPECT_EQ(read.requires_python, ">=3.8");
  ASSERT_THAT(read.requires_dist, SizeIs(2));
  EXPECT_EQ(read.requires_dist[0].normalized, "werkzeug");
  ASSERT_TRUE(read.requires_dist[1].marker);
  EXPECT_EQ(read.requires_dist[1].marker->text(), "python_version < \"3.10\"");
  EXPECT_THAT(read.unreadable_requires, ElementsAre("old>=1.*"));
  EXPECT_THAT(read.provides_extras, ElementsAre("async", "dotenv"));
  EXPECT_TRUE(read.dynamic_requires);
  EXPECT_FALSE(read.import_names);
}

TEST(CoreMetadataTest, ReadsImportNames) {
  const auto read = parse_core_metadata(
      "Metadata-Version: 2.5\nName: a\nImport-Name: a.b\nImport-Name: _a_impl ; private\nImport-Name: no "
      "name\nImport-Namespace: a\n");
  ASSERT_TRUE(read.import_names);
  ASSERT_THAT(*read.import_names, SizeIs(2));
  EXPECT_EQ((*read.import_names)[0].name, "a.b");
  EXPECT_FALSE((*read.import_names)[0].is_private);
  EXPECT_EQ((*read.import_names)[1].name, "_a_impl");
  EXPECT_TRUE((*read.import_names)[1].is_private);
  ASSERT_TRUE(read.import_namespaces);
  EXPECT_EQ(read.import_namespaces->front().name, "a");
}

TEST(CoreMetadataTest, AnEmptyImportNameSaysThatThereIsNone) {
  const auto read = parse_core_metadata("Name: a\nImport-Name:\n");
  ASSERT_TRUE(read.import_names);
  EXPECT_THAT(*read.import_names, IsEmpty());
  EXPECT_FALSE(read.import_namespaces);
}

TEST(CoreMetadataTest, ALicenseExpressionWins) {
  EXPECT_EQ(parse_core_metadata("License: see file\nLicense-Expression: MIT\n").license, "MIT");
  EXPECT_EQ(parse_core_metadata("License-Expression: MIT\nLicense: see file\n").license, "MIT");
}

TEST(CoreMetadataTest, OfSingleFieldsTheFirstCounts) {
  const auto read = parse_core_metadata("Name: a\nName: b\nVersion: 1\nVERSION: 2\n");
  EXPECT_EQ(read.name, "a");
  EXPECT_EQ(read.version, "1");
}

TEST(CoreMetadataTest, BrokenEncodingsAreReplaced) {
  EXPECT_EQ(parse_core_metadata("\xEF\xBB\xBFName: a\nSummary: caf\xE9 \xC3\xA9\xF0\x9F\xED\xA0\x80.\n").summary,
            "caf\xEF\xBF\xBD \xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD.");
}

TEST(CoreMetadataTest, ALineThatIsNoFieldBeginsTheBody) {
  const auto read =
      parse_core_metadata("Name: a\nLicense: one\ntwo words of a licence that was not folded\nRequires-Dist: b\n");
  EXPECT_EQ(read.name, "a");
  EXPECT_THAT(read.requires_dist, IsEmpty());
}

TEST(CoreMetadataTest, AnythingIsTaken) {
  for (const auto* const text :
       {"", "\n", ":", " folded first\nName: a", "Name", "Name:", "\r\r\r", "no field\nName: a"}) {
    const auto name = parse_core_metadata(text).name;
    EXPECT_TRUE(name.empty() || name == "a") << text;
  }
  EXPECT_EQ(parse_core_metadata(std::string_view("Name: a\0b\nVersion: 1\n", 21)).version, "1");
}

TEST(CoreMetadataTest, RequirementsAreBounded) {
  std::string many = "Requires-Dist: a >1";
  while (many.size() < 10'000) many += ",>1";
  std::string text = "Name: a\n";
  while (text.size() < 2 * kMaxRequirementsBytes) text += many + '\n';
  const auto read = parse_core_metadata(text);
  EXPECT_GT(read.requires_dist.size() + read.unreadable_requires.size(), 200u);
  EXPECT_LE(read.requires_dist.size() * (many.size() - 15), kMaxRequirementsBytes);
}

TEST(CoreMetadataTest, FieldsAreBounded) {
  std::string text;
  for (std::size_t i = 0; i < kMaxMetadataFields; ++i) text += "Provides-Extra: x\n";
  EXPECT_EQ(parse_core_metadata(text + "Name: a\n").name, "");
  EXPECT_EQ(parse_core_metadata("Name: a\n" + text).name, "a");
}

}  // namespace
}  // namespace varve::python
