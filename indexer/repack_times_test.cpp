#include <gmock/gmock.h>

#include "core/index/merge/bytecode.h"
#include "indexer/repack_image_fixture.h"

namespace varve::indexer {
namespace {

using index::FlatTree;
using index::RepackTimes;
using index::Tier;
using ::testing::Contains;
using ::testing::IsEmpty;

constexpr std::string_view kFolder = "usr/lib/python3/site-packages/";
constexpr std::uint32_t kFirst = 1'700'000'000, kSecond = 1'700'000'600;

std::string in_site(std::string_view rest) { return std::string(kFolder) + std::string(rest); }

std::string bytecode(std::uint32_t time, std::size_t source_bytes, std::string_view code, std::uint32_t flags = 0) {
  Bytes bytes;
  for (const auto word : {std::uint32_t(0x0a0d0da7), flags, time, std::uint32_t(source_bytes)}) append_le(bytes, word);
  append(bytes, as_bytes(code));
  return std::string(as_text(bytes));
}

// Two wheels as pip leaves them at some time, compiled; the tests change one thing.
struct Build {
  std::uint32_t time = kFirst;
  std::string source = "x = 1\n";
  std::optional<std::uint32_t> source_time = std::nullopt;  // of a/m.py, if not that of all
  std::uint32_t header_time = 0;                            // that its bytecode names; 0 = the source's
  std::string code = "code of m";
  std::uint32_t flags = 0;
  std::string other = "y = 2\n";  // b/n.py

  Bytes tar() const {
    static std::uint32_t now, of_source;
    now = time;
    of_source = source_time.value_or(time);
    const auto at = [](codec::TarEntry& entry) { entry.mtime_seconds = now; };
    const auto at_source = [](codec::TarEntry& entry) { entry.mtime_seconds = of_source; };
    return test::Tar()
        .dir("usr", at)
        .dir("usr/lib", at)
        .dir("usr/lib/python3", at)
        .dir(std::string(kFolder), at)
        .dir(in_site("a"), at)
        .file(in_site("a/core.so"), test::some(500'000, 1), at)
        .file(in_site("a/m.py"), source, at_source)
        .dir(in_site("a/__pycache__"), at)
        .file(in_site("a/__pycache__/m.cpython-311.pyc"),
              bytecode(header_time != 0 ? header_time : of_source, source.size(), code, flags), at)
        .add(FileType::kSymlink, in_site("a/link"), "m.py", at)
        .dir(in_site("b"), at)
        .file(in_site("b/n.py"), other, at)
        .dir(in_site("b/__pycache__"), at)
        .file(in_site("b/__pycache__/n.cpython-311.pyc"), bytecode(now, other.size(), "code of n"), at)
        .file(in_site("b/data"), test::some(400'000, 2), at)
        .bytes();
  }
};

class RepackTimesTest : public test::RepackFixture {
 protected:
  static index::Placement wheels() {
    index::Placement placement;
    placement.components = {
        {.name = "pip:a",
         .version = "1",
         .tier = Tier::kHot,
         .paths = {in_site("a/__pycache__/m.cpython-311.pyc"), in_site("a/core.so"), in_site("a/link"),
                   in_site("a/m.py")}},
        {.name = "pip:b",
         .version = "1",
         .tier = Tier::kHot,
         .paths = {in_site("b/__pycache__/n.cpython-311.pyc"), in_site("b/data"), in_site("b/n.py")}}};
    return placement;
  }
  Opened built(const Build& build, const std::string& tag) {
    return open(gzip_image({test::Tar().dir("etc").file("etc/x", "base").bytes(), build.tar()}, tag));
  }
  RepackReport pack(const Opened& old, const RepackTimes& times, const Opened* previous = nullptr) {
    RepackOptions options;
    options.times = times;
    return repack(old, wheels(), options, previous);
  }
  static std::vector<std::string> reused(const RepackReport& report) {
    std::vector<std::string> components;
    for (const auto& layer : report.layers)
      if (layer.reused) components.insert(components.end(), layer.components.begin(), layer.components.end());
    return components;
  }
  static constexpr RepackTimes kOfPrevious{.of_previous = true, .latest = {}, .latest_created = {}};
};

TEST_F(RepackTimesTest, ARebuildThatDiffersInTimesAloneTakesTheLayersOver) {
  const auto first = built({}, "v1");
  const auto one = open_new(pack(first, kOfPrevious));
  const auto second = built({.time = kSecond}, "v2");
  const auto report = pack(second, kOfPrevious, &one);
  EXPECT_THAT(reused(report), ::testing::UnorderedElementsAre("pip:a", "pip:b"));
  EXPECT_LT(report.new_bytes, 2000u);
  std::uint64_t files = 0;
  for (const auto& layer : report.layers) files += layer.files_with_previous_times;
  EXPECT_EQ(files, 7u);
  const auto two = open_new(report);
  // Files have the old time and the old bytecode, directories their own.
  const auto placement = wheels();
  for (const auto& component : placement.components) {
    for (const auto& path : component.paths) {
      std::string why;
      EXPECT_TRUE(index::same_entry(first.tree.entries.at(path), two.tree.entries.at(path), &why)) << path << why;
    }
  }
  for (const auto& [path, entry] : second.tree.entries) {
    std::string why;
    if (entry.type != FileType::kDirectory) continue;
    EXPECT_TRUE(index::same_entry(entry, two.tree.entries.at(path), &why)) << path << why;
  }
  const auto record = find_layout_record(two.image);
  std::size_t told = 0;
  for (const auto& layer : record->layers) {
    told += layer.times_of_previous;
    for (const auto& [name, component] : layer.components) EXPECT_EQ(component.changes, 0u) << name;
  }
  EXPECT_EQ(told, reused(report).empty() ? 0u : record->layers.size() - 2);
  // A third build, of the second's layers; and the first one once more has nothing of others'.
  EXPECT_EQ(reused(pack(built({.time = kSecond + 600}, "v3"), kOfPrevious, &two)).size(), 2u);
  for (const auto& layer : pack(first, kOfPrevious, &two).layers) EXPECT_EQ(layer.files_with_previous_times, 0u);
}

TEST_F(RepackTimesTest, ExactTimesAreWrittenWhereTheyAreAskedFor) {
  const auto one = open_new(pack(built({}, "v1"), {}));
  const auto second = built({.time = kSecond}, "v2");
  const auto report = pack(second, {}, &one);
  EXPECT_THAT(reused(report), IsEmpty());
  test::expect_same_tree(second.tree, open_new(report).tree);
}

TEST_F(RepackTimesTest, WhatDiffersInMoreThanTimesIsWrittenAnew) {
  const auto one = open_new(pack(built({}, "v1"), kOfPrevious));
  const std::vector<std::pair<const char*, Build>> builds{
      {"another source of the same size", {.time = kSecond, .source = "x = 2\n"}},
      {"other code under the same source", {.time = kSecond, .code = "Code of m"}},
      {"bytecode by hash", {.time = kSecond, .flags = 1}},
      {"a source that moved without its bytecode", {.time = kFirst, .source_time = kSecond, .header_time = kFirst}},
      {"bytecode that does not count", {.time = kSecond, .header_time = kSecond + 5}},
  };
  const auto placement = wheels();
  for (const auto& [what, build] : builds) {
    SCOPED_TRACE(what);
    const auto second = built(build, "v2");
    const auto report = pack(second, kOfPrevious, &one);
    EXPECT_THAT(reused(report), ::testing::Not(Contains("pip:a")));
    const auto two = open_new(report);
    for (const auto& path : placement.components[0].paths) {
      std::string why;
      EXPECT_TRUE(index::same_entry(second.tree.entries.at(path), two.tree.entries.at(path), &why)) << path << why;
    }
  }
}

TEST_F(RepackTimesTest, StaleBytecodeStaysStaleAndThatByHashAsksForNoTime) {
  // The source moves, its bytecode of another time does not: the first version's source could make it count.
  const auto stale = open_new(pack(built({.header_time = kSecond}, "v1"), kOfPrevious));
  const auto moved = built({.time = kSecond + 60, .header_time = kSecond}, "v2");
  EXPECT_THAT(reused(pack(moved, kOfPrevious, &stale)), ::testing::ElementsAre("pip:b"));
  const auto hashed = open_new(pack(built({.header_time = 77, .flags = 3}, "v1"), kOfPrevious));
  const auto again = built({.time = kSecond, .header_time = 77, .flags = 3}, "v2");
  EXPECT_EQ(reused(pack(again, kOfPrevious, &hashed)).size(), 2u);
}

TEST_F(RepackTimesTest, ALayerWithOneChangedComponentHasItsOwnTimes) {
  RepackOptions together;
  together.times = kOfPrevious;
  together.limits.min_layer_bytes = 5'000'000;
  const auto pack_together = [&](const Opened& old, const Opened* previous) {
    return repack(old, wheels(), together, previous);
  };
  const auto one = open_new(pack_together(built({}, "v1"), nullptr));
  const auto second = built({.time = kSecond, .other = "y = 3\n"}, "v2");
  const auto report = pack_together(second, &one);
  EXPECT_THAT(reused(report), IsEmpty());
  const auto two = open_new(report);
  test::expect_same_tree(second.tree, two.tree);
  // Recorded as what it is: the same again is the same layer, and only b has changed.
  const auto record = find_layout_record(two.image);
  for (const auto& layer : record->layers) {
    EXPECT_FALSE(layer.times_of_previous);
    for (const auto& [name, component] : layer.components) EXPECT_EQ(component.changes, name == "pip:b") << name;
  }
  for (const auto& layer : pack_together(second, &two).layers) EXPECT_EQ(layer.files_with_previous_times, 0u);
}

TEST_F(RepackTimesTest, LateTimesAreSetBackAndBytecodeGoesAlong) {
  constexpr std::int64_t kLatest = kFirst - 100;
  const RepackTimes clamped{.of_previous = false, .latest = kLatest, .latest_created = {}};
  const auto report = pack(built({}, "v1"), clamped);
  const auto one = open_new(report);
  for (const auto& [path, entry] : one.tree.entries) {
    if (!path.starts_with("usr")) continue;
    EXPECT_EQ(entry.mtime_seconds, kLatest) << path;
  }
  EXPECT_EQ(one.tree.entries.at(in_site("a/__pycache__/m.cpython-311.pyc")).content_digest,
            digest_of(bytecode(kLatest, Build().source.size(), Build().code)));
  EXPECT_EQ(find_layout_record(one.image)->latest_time, kLatest);
  // A build at another time is the same image, but for the base that is kept.
  const auto again = pack(built({.time = kSecond}, "v2"), clamped, &one);
  EXPECT_EQ(again.image, report.image);
  EXPECT_EQ(again.new_bytes, 0u);
  // Early ones stay.
  const RepackTimes later{.of_previous = false, .latest = kSecond, .latest_created = {}};
  const auto second = built({.time = kSecond}, "v2");
  test::expect_same_tree(second.tree, open_new(pack(second, later)).tree);
}

TEST_F(RepackTimesTest, ASourceWhoseBytecodeCannotFollowKeepsItsTime) {
  constexpr std::int64_t kLatest = kFirst - 100;
  // Set back, the source would have the time that this bytecode names.
  const auto old = built({.header_time = std::uint32_t(kLatest)}, "v1");
  const auto now = open_new(pack(old, {.of_previous = false, .latest = kLatest, .latest_created = {}}));
  EXPECT_EQ(now.tree.entries.at(in_site("a/m.py")).mtime_seconds, kFirst);
  EXPECT_EQ(now.tree.entries.at(in_site("b/n.py")).mtime_seconds, kLatest);
  const auto pyc = in_site("a/__pycache__/m.cpython-311.pyc");
  EXPECT_EQ(now.tree.entries.at(pyc).content_digest, old.tree.entries.at(pyc).content_digest);
  // What is kept as it is cannot follow either.
  RepackOptions kept;
  kept.times.latest = kLatest;
  kept.keep_as_is = std::vector<std::uint32_t>{0, 1};
  const auto first = built({}, "v1");
  test::expect_same_tree(first.tree, open_new(repack(first, wheels(), kept)).tree);
}

TEST_F(RepackTimesTest, CreatedIsSetBackInConfigAndHistory) {
  const auto old = built({}, "v1");
  const auto created = [&](std::int64_t latest) {
    pack(old, {.of_previous = false, .latest = {}, .latest_created = latest});
    return parsed(oci::open_image(new_, "new", oci::Platform::of_this_machine()).config_json);
  };
  const auto config = created(1'600'000'000);
  EXPECT_EQ(config["created"], "2020-09-13T12:26:40Z");
  EXPECT_EQ(config["history"].back()["created"], "2020-09-13T12:26:40Z");
  EXPECT_EQ(created(1'800'000'000)["created"], "2024-01-02T03:04:05Z");
}

}  // namespace
}  // namespace varve::indexer
