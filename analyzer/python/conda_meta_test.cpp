#include "analyzer/python/conda_meta.h"

#include <gmock/gmock.h>

#include <string>

#include "core/base/errors.h"

namespace varve::python {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

const std::string kA(64, 'a'), kB(64, 'b');

std::string record() {
  return R"({"build": "py311h64a7726_0", "build_number": 7,
    "channel": "https://conda.anaconda.org/conda-forge/linux-64", "constrains": ["numpy-base <0a0"],
    "depends": ["libblas >=3.9.0,<4.0a0", "python >=3.11,<3.12.0a0"], "extracted_package_dir": "/opt/pkgs/numpy",
    "files": ["lib/python3.11/site-packages/numpy/__init__.py", "bin/f2py",
              "lib/python3.11/site-packages/numpy/__pycache__/__init__.cpython-311.pyc"],
    "link": {"source": "/opt", "type": 1, "name": "wrong"}, "md5": "00", "name": "numpy", "noarch": null,
    "paths_data": {"paths": [
      {"_path": "bin/f2py", "path_type": "hardlink", "prefix_placeholder": "/opt/ph", "sha256": ")" +
         kA + R"(", "sha256_in_prefix": ")" + kB + R"(", "size_in_bytes": 220},
      {"_path": "lib/python3.11/site-packages/numpy/__init__.py", "path_type": "hardlink", "sha256": ")" +
         kA + R"(", "size_in_bytes": 9},
      {"_path": "lib/linked.so", "path_type": "softlink"}], "paths_version": 1},
    "requested_spec": "numpy=1.26", "size": 3, "subdir": "linux-64", "timestamp": 1707225342, "version": "1.26.4",
    "x": [[{"name": "also wrong"}]]})";
}

TEST(CondaRecordTest, ReadsARecord) {
  const auto read = parse_conda_record(record());
  EXPECT_EQ(read.name, "numpy");
  EXPECT_EQ(read.version, "1.26.4");
  EXPECT_EQ(read.build, "py311h64a7726_0");
  EXPECT_EQ(read.build_number, 7u);
  EXPECT_EQ(read.channel, "conda-forge");
  EXPECT_EQ(read.subdir, "linux-64");
  EXPECT_EQ(read.noarch, "");
  EXPECT_EQ(read.requested_spec, "numpy=1.26");
  EXPECT_THAT(read.depends, ElementsAre("libblas >=3.9.0,<4.0a0", "python >=3.11,<3.12.0a0"));
}

TEST(CondaRecordTest, JoinsBothListsOfFiles) {
  const auto files = parse_conda_record(record()).files;
  ASSERT_THAT(files, SizeIs(4));
  EXPECT_EQ(files[0].path, "bin/f2py");
  EXPECT_EQ(files[0].size, 220u);
  EXPECT_EQ(files[0].sha256->hex(), kB);  // what lies in the prefix, not what was packed
  EXPECT_EQ(files[1].path, "lib/linked.so");
  EXPECT_FALSE(files[1].size);
  EXPECT_EQ(files[2].path, "lib/python3.11/site-packages/numpy/__init__.py");
  EXPECT_EQ(files[2].sha256->hex(), kA);
  EXPECT_FALSE(files[3].sha256);
}

TEST(CondaRecordTest, KnowsTheOtherSpellings) {
  const auto read = parse_conda_record(
      R"({"name": "tzdata", "version": "2024a", "build_string": "h0_0", "noarch": "python", "channel": "conda-forge",
          "requested_spec": "None",
    "requested_specs": ["tzdata", "tz*"], "build_number": -1})");
  EXPECT_EQ(read.build, "h0_0");
  EXPECT_EQ(read.noarch, "python");
  EXPECT_EQ(read.channel, "conda-forge");
  EXPECT_EQ(read.requested_spec, "tzdata, tz*");
  EXPECT_EQ(read.build_number, 0u);
}

TEST(CondaRecordTest, SaysWhatIsWrong) {
  const auto complaint = [](std::string_view text) -> std::string {
    try {
      parse_conda_record(text, "conda-meta/x.json");
    } catch (const CorruptData& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(complaint(""), HasSubstr("conda-meta/x.json: no JSON at byte"));
  EXPECT_THAT(complaint("{\"name\": \"a\","), HasSubstr("no JSON"));
  EXPECT_THAT(complaint("{\"version\": \"1\"}"), HasSubstr("names no package"));
  EXPECT_THAT(complaint("\"name\""), HasSubstr("names no package"));
  EXPECT_THAT(complaint("[\"name\"]"), HasSubstr("names no package"));
  EXPECT_THAT(complaint(std::string(1'000'000, '[')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(complaint("{\"name\": \"\xFF\"}"), HasSubstr("no JSON"));
}

TEST(CondaDependencyTest, TakesTheName) {
  const std::pair<const char*, const char*> kCases[] = {{"python >=3.9,<3.10.0a0", "python"},
                                                        {"conda-forge::Numpy", "numpy"},
                                                        {"python_abi 3.11.* *_cp311", "python_abi"},
                                                        {"libgcc-ng[version='>=12']", "libgcc-ng"},
                                                        {"a==1", "a"},
                                                        {"", ""},
                                                        {"__glibc >=2.17", "__glibc"}};
  for (const auto& [spec, name] : kCases) EXPECT_EQ(conda_dependency_name(spec), name) << spec;
}

}  // namespace
}  // namespace varve::python
