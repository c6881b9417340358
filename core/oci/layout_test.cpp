#include "core/oci/layout.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/copy_blob.h"
#include "testing/temp_dir.h"

namespace varve::oci {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class LayoutTest : public testing::Test {
 protected:
  // A manifest whose digest depends on `name`.
  Bytes image_manifest(const std::string& name) {
    const json document = {{"schemaVersion", 2},
                           {"mediaType", kOciManifestType},
                           {"config",
                            {{"mediaType", "application/vnd.oci.image.config.v1+json"},
                             {"digest", digest_of(name).to_string()},
                             {"size", name.size()}}},
                           {"layers", json::array()}};
    return to_bytes(as_bytes(document.dump()));
  }
  Bytes artifact(const Descriptor& subject, const std::string& type, const std::string& value = "1") {
    ArtifactManifest manifest;
    manifest.artifact_type = type;
    manifest.subject = subject;
    manifest.annotations = {{"value", value}};
    manifest.layers = {empty_json_descriptor()};
    return manifest.to_json();
  }
  json read_index() { return json::parse(as_text(read_file(dir_ / "index.json"))); }
  void write_index(const json& index) { write_file_atomically(dir_ / "index.json", as_bytes(index.dump())); }
  // Puts bytes under blobs/ without listing them.
  json entry_of(ByteView bytes, std::string_view type) {
    const auto blob = put_bytes(*repository_, bytes, type);
    return {{"mediaType", type}, {"digest", blob.digest.to_string()}, {"size", blob.size}};
  }
  std::size_t files_under(const char* folder) {
    std::size_t count = 0;
    for (const auto& item : std::filesystem::recursive_directory_iterator(dir_ / folder))
      count += item.is_regular_file();
    return count;
  }

  test::TempDir dir_;
  std::shared_ptr<Repository> repository_ = create_layout(dir_.path());
};

TEST_F(LayoutTest, KeepsBlobsWholeOrNotAtAll) {
  const auto blob = put_bytes(*repository_, as_bytes("hello"), "application/x");
  EXPECT_TRUE(repository_->has_blob(blob));
  EXPECT_EQ(as_text(read_whole_blob(*repository_, blob, 100)), "hello");

  auto wrong = blob;
  wrong.digest = digest_of("other");
  for (const std::string content : {"hello", "hell", "hello!"})
    EXPECT_THROW(repository_->put_blob(wrong, [&](ByteRange, const ByteSink& sink) { sink(as_bytes(content)); }),
                 CorruptData);
  EXPECT_THROW(repository_->put_blob(wrong, [&](ByteRange, const ByteSink&) { throw Cancelled("stop"); }), Cancelled);
  EXPECT_FALSE(repository_->has_blob(wrong));
  EXPECT_EQ(files_under("blobs"), 1u);
}

TEST_F(LayoutTest, ADraftBecomesABlobWhenItsDigestIsKnown) {
  Descriptor blob;
  blob.digest = digest_of("hello");
  blob.size = 5;
  {
    const auto dropped = repository_->draft_blob({});
    dropped->write(as_bytes("hello"));
    EXPECT_FALSE(repository_->has_blob(blob));
  }
  EXPECT_EQ(files_under("blobs"), 0u);
  const auto draft = repository_->draft_blob({});
  draft->write(as_bytes("hel"));
  EXPECT_THROW(draft->commit(blob), CorruptData);
  draft->write(as_bytes("lo"));
  EXPECT_TRUE(draft->commit(blob));
  EXPECT_EQ(as_text(read_whole_blob(*repository_, blob, 100)), "hello");
  const auto again = repository_->draft_blob({});
  again->write(as_bytes("hello"));
  EXPECT_FALSE(again->commit(blob));
  EXPECT_EQ(files_under("blobs"), 1u);
}

TEST_F(LayoutTest, CopiesBetweenFoldersAreLinksOfCheckedBlobs) {
  const auto blob = put_bytes(*repository_, as_bytes("hello"), "application/x");
  const test::TempDir other;
  const auto destination = create_layout(other.path());
  const auto path = std::filesystem::path("blobs/sha256") / blob.digest.hex();
  EXPECT_TRUE(copy_blob(*repository_, *destination, blob));
  EXPECT_TRUE(std::filesystem::equivalent(dir_ / path, other / path));
  EXPECT_FALSE(copy_blob(*repository_, *destination, blob));
  // A link among the source's blobs leads to a file, and that is what is taken.
  std::filesystem::remove(other / path);
  std::filesystem::rename(dir_ / path, dir_ / "elsewhere");
  std::filesystem::create_symlink(dir_ / "elsewhere", dir_ / path);
  EXPECT_TRUE(copy_blob(*repository_, *destination, blob));
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(other / path)));
  // Broken ones do not spread.
  std::filesystem::remove(other / path);
  std::ofstream(dir_ / "elsewhere", std::ios::trunc) << "hexlo";
  EXPECT_THROW(copy_blob(*repository_, *destination, blob), CorruptData);
  EXPECT_FALSE(destination->has_blob(blob));
}

TEST_F(LayoutTest, ReplacesABlobOfTheWrongSize) {
  const auto blob = put_bytes(*repository_, as_bytes("hello"), "application/x");
  std::ofstream(dir_ / "blobs/sha256" / blob.digest.hex(), std::ios::trunc) << "he";
  EXPECT_FALSE(repository_->has_blob(blob));
  EXPECT_THROW(read_whole_blob(*repository_, blob, 100), CorruptData);
  put_bytes(*repository_, as_bytes("hello"), "application/x");
  EXPECT_EQ(as_text(read_whole_blob(*repository_, blob, 100)), "hello");
  EXPECT_EQ(files_under("blobs"), 1u);
}

TEST_F(LayoutTest, ReadsRangesAndChecksWholeBlobs) {
  const auto blob = put_bytes(*repository_, as_bytes("0123456789"), "application/x");
  std::string part;
  const ByteSink sink = [&](ByteView bytes) { part += as_text(bytes); };
  repository_->read_blob(blob, {.offset = 3, .length = 4}, sink);
  EXPECT_EQ(part, "3456");
  EXPECT_THROW(repository_->read_blob(blob, {.offset = 8, .length = 3}, sink), CorruptData);
  EXPECT_THROW(repository_->read_blob(blob, {.offset = ~0ull, .length = 2}, sink), CorruptData);

  std::fstream(dir_ / "blobs/sha256" / blob.digest.hex(), std::ios::in | std::ios::out).write("X", 1);
  EXPECT_THROW(read_whole_blob(*repository_, blob, 100), CorruptData);
  EXPECT_THROW(read_whole_blob(*repository_, blob, 5), Unsupported);
  auto missing = blob;
  missing.digest = digest_of("none");
  EXPECT_THROW(read_whole_blob(*repository_, missing, 100), NotFound);
}

TEST_F(LayoutTest, MovesATagToItsNewHolder) {
  const auto first = repository_->put_manifest(image_manifest("1"), kOciManifestType, "latest");
  const auto second = repository_->put_manifest(image_manifest("2"), kOciManifestType, "latest");
  EXPECT_EQ(repository_->manifest("latest").descriptor.digest, second.digest);
  EXPECT_EQ(repository_->manifest(first.digest.to_string()).bytes, image_manifest("1"));
  EXPECT_THAT(read_index()["manifests"], SizeIs(1));
  repository_->put_manifest(image_manifest("2"), kOciManifestType, "other");
  EXPECT_EQ(repository_->manifest("other").descriptor.digest, second.digest);
  EXPECT_EQ(repository_->manifest("latest").descriptor.digest, second.digest);
  EXPECT_EQ(repository_->manifest("").descriptor.digest, second.digest);
  EXPECT_THROW(repository_->manifest("none"), NotFound);
}

TEST_F(LayoutTest, KeepsFieldsOfOthersInIndexJson) {
  write_index({{"schemaVersion", 2}, {"manifests", json::array()}, {"annotations", {{"who", "other"}}}, {"x-more", 5}});
  repository_->put_manifest(image_manifest("1"), kOciManifestType, "t");
  EXPECT_EQ(read_index()["annotations"]["who"], "other");
  EXPECT_EQ(read_index()["x-more"], 5);
}

// As umoci does, by a rename, and as skopeo does, over what is there: at once, and when the file has been left alone.
TEST_F(LayoutTest, SeesWhatOthersWriteIntoItsList) {
  const auto first = repository_->put_manifest(image_manifest("first"), kOciManifestType, "a");
  const auto second = repository_->put_manifest(image_manifest("other"), kOciManifestType, "b");
  const auto of_a = [&] { return repository_->manifest("a").descriptor.digest; };
  const auto swapped = [&] {
    auto index = read_index();
    std::swap(index["manifests"][0]["annotations"], index["manifests"][1]["annotations"]);
    return index.dump();
  };
  auto wanted = first.digest, other = second.digest;
  for (const auto rest : {std::chrono::milliseconds(0), std::chrono::milliseconds(100)}) {
    for (const bool in_place : {false, true, true}) {
      ASSERT_EQ(of_a(), wanted);
      std::this_thread::sleep_for(rest);
      ASSERT_EQ(of_a(), wanted);
      const auto text = swapped();
      ASSERT_EQ(text.size(), std::filesystem::file_size(dir_ / "index.json"));
      if (in_place)
        std::ofstream(dir_ / "index.json") << text;
      else
        write_file_atomically(dir_ / "index.json", as_bytes(text));
      std::swap(wanted, other);
      EXPECT_EQ(of_a(), wanted) << "in place: " << in_place << ", after " << rest.count() << " ms";
    }
  }
}

TEST_F(LayoutTest, OnlyImageDoesNotCountArtifacts) {
  EXPECT_THROW(repository_->manifest(""), NotFound);
  const auto image = repository_->put_manifest(image_manifest("1"), kOciManifestType, "");
  repository_->put_manifest(artifact(image, "application/vnd.varve.index.v1"), kOciManifestType, "");
  // Listed by a tool that does not say what it is.
  auto index = read_index();
  index["manifests"].push_back(entry_of(artifact(image, "application/vnd.signature"), kOciManifestType));
  index["manifests"].push_back(
      {{"mediaType", "application/x-unknown"}, {"digest", digest_of("u").to_string()}, {"size", 1}});
  write_index(index);
  EXPECT_EQ(repository_->manifest("").descriptor.digest, image.digest);

  repository_->put_manifest(image_manifest("2"), kOciManifestType, "second");
  try {
    repository_->manifest("");
    FAIL() << "two images";
  } catch (const NotFound& error) {
    EXPECT_THAT(error.what(), HasSubstr("second"));
  }
}

TEST_F(LayoutTest, OnlyImageMayBeAnIndexWithItsPlatformsListedToo) {
  const auto child = repository_->put_manifest(image_manifest("1"), kOciManifestType, "");
  const json list = {
      {"schemaVersion", 2},
      {"mediaType", kOciIndexType},
      {"manifests", {{{"mediaType", kOciManifestType}, {"digest", child.digest.to_string()}, {"size", child.size}}}}};
  const auto index = repository_->put_manifest(as_bytes(list.dump()), kOciIndexType, "");
  EXPECT_EQ(repository_->manifest("").descriptor.digest, index.digest);
}

TEST_F(LayoutTest, FindsNamesOfOtherToolsAndInNestedIndexes) {
  auto containerd = entry_of(image_manifest("1"), kOciManifestType);
  containerd["annotations"] = {{"io.containerd.image.name", "registry.example:5000/app:v1"}};
  auto nested = entry_of(image_manifest("2"), kOciManifestType);
  nested["annotations"] = {{"org.opencontainers.image.ref.name", "deep"}};
  const json inner = {{"schemaVersion", 2}, {"manifests", {nested}}};
  write_index({{"schemaVersion", 2}, {"manifests", {containerd, entry_of(as_bytes(inner.dump()), kOciIndexType)}}});
  EXPECT_EQ(repository_->manifest("registry.example:5000/app:v1").bytes, image_manifest("1"));
  EXPECT_EQ(repository_->manifest("v1").bytes, image_manifest("1"));
  EXPECT_EQ(repository_->manifest("deep").bytes, image_manifest("2"));
}

TEST_F(LayoutTest, StopsAtIndexesThatNeverEnd) {
  // Each level names the next; below the limit nothing is looked for.
  auto entry = entry_of(image_manifest("1"), kOciManifestType);
  entry["annotations"] = {{"org.opencontainers.image.ref.name", "deep"}};
  for (int depth = 0; depth < kMaxIndexDepth + 1; ++depth) {
    const json inner = {{"schemaVersion", 2}, {"manifests", {entry}}};
    entry = entry_of(as_bytes(inner.dump()), kOciIndexType);
  }
  write_index({{"schemaVersion", 2}, {"manifests", {entry}}});
  EXPECT_THROW(repository_->manifest("deep"), NotFound);
}

TEST_F(LayoutTest, ListsReferrersByTheirContent) {
  const auto image = repository_->put_manifest(image_manifest("1"), kOciManifestType, "latest");
  const auto other = repository_->put_manifest(image_manifest("2"), kOciManifestType, "other");
  const auto index = repository_->put_manifest(artifact(image, "application/vnd.a"), kOciManifestType, "");
  repository_->put_manifest(artifact(image, "application/vnd.b"), kOciManifestType, "");
  repository_->put_manifest(artifact(other, "application/vnd.a"), kOciManifestType, "");
  const auto found = repository_->referrers(image.digest, "application/vnd.a");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].digest, index.digest);
  EXPECT_EQ(found[0].annotations.at("value"), "1");
  EXPECT_THAT(repository_->referrers(image.digest, ""), SizeIs(2));
  EXPECT_THAT(repository_->referrers(digest_of("none"), "application/vnd.a"), IsEmpty());

  // An entry that lies about its type, one whose blob is gone, and one put twice change nothing.
  auto document = read_index();
  auto liar = entry_of(artifact(image, "application/vnd.c"), kOciManifestType);
  liar["artifactType"] = "application/vnd.a";
  document["manifests"].push_back(liar);
  document["manifests"].push_back(
      {{"mediaType", kOciManifestType}, {"digest", digest_of("gone").to_string()}, {"size", 4}});
  write_index(document);
  repository_->put_manifest(artifact(image, "application/vnd.a"), kOciManifestType, "");
  EXPECT_THAT(repository_->referrers(image.digest, "application/vnd.a"), SizeIs(1));
}

TEST_F(LayoutTest, ReadsNoReferrersOfOtherManifests) {
  const auto one = repository_->put_manifest(image_manifest("one"), kOciManifestType, "one");
  const auto two = repository_->put_manifest(image_manifest("two"), kOciManifestType, "two");
  const auto of_one = repository_->put_manifest(artifact(one, "application/x"), kOciManifestType, "");
  const auto of_two = repository_->put_manifest(artifact(two, "application/x"), kOciManifestType, "");
  const auto digests = [](const std::vector<Descriptor>& referrers) {
    std::vector<Digest> all;
    for (const auto& referrer : referrers) all.push_back(referrer.digest);
    return all;
  };
  for (const bool ours : {false, true}) {
    const auto opened = create_layout(dir_.path(), ours ? std::make_shared<LateSync>() : nullptr);
    EXPECT_THAT(digests(opened->referrers(one.digest, "application/x")), ElementsAre(of_one.digest));
    EXPECT_THAT(digests(opened->referrers(two.digest, "")), ElementsAre(of_two.digest));
  }
  // What is noted leads to no more than is there: the manifest has the last word.
  auto index = read_index();
  for (auto& entry : index["manifests"])
    if (entry["annotations"].contains(kSubjectAnnotation))
      entry["annotations"][kSubjectAnnotation] = one.digest.to_string();
  write_index(index);
  const auto again = create_layout(dir_.path());
  EXPECT_THAT(digests(again->referrers(one.digest, "application/x")), ElementsAre(of_one.digest));
  EXPECT_THAT(digests(again->referrers(two.digest, "application/x")), IsEmpty());
  // Others note nothing.
  for (auto& entry : index["manifests"]) entry["annotations"].erase(kSubjectAnnotation);
  write_index(index);
  EXPECT_THAT(digests(create_layout(dir_.path())->referrers(two.digest, "")), ElementsAre(of_two.digest));
}

TEST_F(LayoutTest, RefusesAChangedManifest) {
  const auto image = repository_->put_manifest(image_manifest("1"), kOciManifestType, "latest");
  auto bytes = image_manifest("1");
  bytes[bytes.size() - 3] ^= std::byte{1};
  write_file_atomically(dir_ / "blobs/sha256" / image.digest.hex(), bytes);
  EXPECT_THROW(repository_->manifest("latest"), CorruptData);
  EXPECT_THROW(repository_->manifest(image.digest.to_string()), CorruptData);
}

TEST_F(LayoutTest, NamesWhatIsMissing) {
  const auto message = [](const std::filesystem::path& dir) {
    try {
      LayoutRepository repository(dir);
      repository.manifest("");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(dir_ / "none"), HasSubstr("no such folder"));
  std::filesystem::remove(dir_ / "oci-layout");
  EXPECT_THAT(message(dir_.path()), HasSubstr("oci-layout is missing"));
  write_file_atomically(dir_ / "oci-layout", as_bytes(R"({"imageLayoutVersion":"9"})"));
  EXPECT_THAT(message(dir_.path()), HasSubstr("imageLayoutVersion '9'"));
  write_file_atomically(dir_ / "oci-layout", as_bytes(R"({"imageLayoutVersion":"1.0.0"})"));
  std::filesystem::remove(dir_ / "index.json");
  EXPECT_THAT(message(dir_.path()), HasSubstr("index.json is missing"));
}

TEST_F(LayoutTest, KnowsTheTagsUnderWhichNoImageLies) {
  const std::string of_a_digest = "sha256-" + std::string(64, 'a');
  for (const auto& tag : {std::string(kPinsTag), std::string(kReplacedPinsTag), std::string(kReplacedPinsTag) + "-2",
                          of_a_digest, of_a_digest + ".sig", of_a_digest + ".att"}) {
    EXPECT_NE(use_of_tag(tag), "") << tag;
    EXPECT_NE(use_of_tag("registry.example/team/app:" + tag), "") << tag;
  }
  for (const auto* tag : {"v1", "latest", "varve", "varve-pins2", "sha256-", "sha256-abc", "team/app:v1"})
    EXPECT_EQ(use_of_tag(tag), "") << tag;
}

TEST_F(LayoutTest, LosesNoEntryOfTwoProcessesAndManyThreads) {
  constexpr int kEach = 25;
  const auto write_some = [&](const std::string& who) {
    const auto repository = create_layout(dir_.path());
    for (int i = 0; i < kEach; ++i)
      repository->put_manifest(image_manifest(who + std::to_string(i)), kOciManifestType, who + std::to_string(i));
  };
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    write_some("child");
    ::_exit(0);
  }
  {
    std::jthread one([&] { write_some("one"); });
    std::jthread two([&] { write_some("two"); });
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(read_index()["manifests"], SizeIs(3 * kEach));
}

}  // namespace
}  // namespace varve::oci
