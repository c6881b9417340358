#include "fuse/podman/image_store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/base64.h"
#include "testing/temp_dir.h"

namespace varve::fuse::podman {
namespace {

using nlohmann::json;
using testing::IsEmpty;

class ImageStoreTest : public testing::Test {
 protected:
  StoredImage image(const std::string& word, std::size_t layers = 2) const {
    const auto manifest = digest_of("manifest " + word);
    StoredImage image;
    image.config = digest_of("config " + word);
    image.manifests = {manifest};
    image.names = {"localhost/" + word + ":v1"};
    image.layers = layers;
    image.bytes = 4'000'000;
    image.created = "2026-01-31T10:00:00Z";
    image.mode = MountMode::kFuse;
    image.spec.reference = "registry.example/team/" + word + ":v1";
    return image;
  }
  StoredImage put(const ImageStore& store, const std::string& word, std::size_t layers = 2) const {
    const auto one = image(word, layers);
    store.make_folders(one);
    store.put(one, as_bytes("manifest " + word), as_bytes("config " + word));
    return one;
  }
  static void publish(const ImageStore& store) {
    store.publish([](const auto&) { return true; });
  }
  json images_json() const { return json::parse(as_text(read_file(place_ / "overlay-images/images.json"))); }
  json layers_json() const { return json::parse(as_text(read_file(place_ / "overlay-layers/layers.json"))); }
  std::string stamp() const { return std::string(as_text(read_file(place_ / "overlay-images/images.lock"))); }

  test::TempDir dir_;
  std::filesystem::path place_ = dir_ / "store";
};

TEST_F(ImageStoreTest, RecordsAreReadAsTheyWereWritten) {
  const auto written = image("one");
  const auto read = parse_stored_image(stored_image_json(written), "record");
  EXPECT_EQ(read.config, written.config);
  EXPECT_EQ(read.manifests, written.manifests);
  EXPECT_EQ(read.names, written.names);
  EXPECT_EQ(read.layers, written.layers);
  EXPECT_EQ(read.bytes, written.bytes);
  EXPECT_EQ(read.mode, written.mode);
  EXPECT_EQ(read.spec.reference, written.spec.reference);
}

TEST_F(ImageStoreTest, RecordsThatAreNoneAreRefused) {
  const auto good = json::parse(stored_image_json(image("one")));
  const auto expect_refused = [&](const char* member, const json& value) {
    auto bad = good;
    bad[member] = value;
    EXPECT_THROW(parse_stored_image(bad.dump(), "record"), Error) << member << " " << value;
  };
  expect_refused("format", 2);
  expect_refused("config", "sha256:../../etc");
  expect_refused("manifests", json::array());
  expect_refused("names", {"../up"});
  expect_refused("names", {"registry.example/a b:v1"});
  expect_refused("layers", 0);
  expect_refused("layers", 100'000);
  expect_refused("mode", "quick");
  expect_refused("spec", {{"reference", "registry.example/a b"}});
  expect_refused("spec", nullptr);
  EXPECT_THROW(parse_stored_image("{", "record"), CorruptData);
}

TEST_F(ImageStoreTest, NamesAreThoseThatPodmanKeeps) {
  EXPECT_EQ(podman_name(oci::Reference::parse("registry.example:5000/team/app")),
            "registry.example:5000/team/app:latest");
  EXPECT_EQ(podman_name(oci::Reference::parse("debian:12")), "docker.io/library/debian:12");
  const auto digest = digest_of("x").to_string();
  EXPECT_EQ(podman_name(oci::Reference::parse("registry.example/app@" + digest)), "registry.example/app@" + digest);
  EXPECT_THROW(podman_name(oci::Reference::parse("oci:/srv/image:v1")), UsageError);
  EXPECT_EQ(parse_podman_name("app:v1"), "localhost/app:v1");
  EXPECT_EQ(parse_podman_name("team/app"), "localhost/team/app:latest");
  EXPECT_EQ(parse_podman_name("registry.example/app:v1"), "registry.example/app:v1");
  for (const auto* name : {"", "../app", "a b", "App", "app@sha256:12", "app:", "a/../b", "app\n"})
    EXPECT_THROW(parse_podman_name(name), UsageError) << name;
}

TEST_F(ImageStoreTest, AnImageHasAsManyLayersAsItsManifestAndTheTopOneIsItsTree) {
  const ImageStore store(place_);
  const auto one = put(store, "one", 3);
  publish(store);
  const auto images = images_json();
  ASSERT_EQ(images.size(), 1u);
  EXPECT_EQ(images[0]["id"], one.config.hex());
  EXPECT_EQ(images[0]["digest"], one.manifests[0].to_string());
  EXPECT_EQ(images[0]["names"], json({"localhost/one:v1"}));
  EXPECT_EQ(images[0]["layer"], one.top_layer());
  EXPECT_EQ(images[0]["big-data-sizes"]["manifest"], std::string("manifest one").size());
  EXPECT_EQ(images[0]["big-data-digests"][one.config.to_string()], one.config.to_string());
  const auto layers = layers_json();
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_FALSE(layers[0].contains("parent"));
  EXPECT_EQ(layers[1]["parent"], layers[0]["id"]);
  EXPECT_EQ(layers[2]["parent"], layers[1]["id"]);
  EXPECT_EQ(layers[2]["id"], one.top_layer());
  EXPECT_EQ(layers[2]["diff-size"], one.bytes);
  EXPECT_NE(layers[1]["diff-digest"], layers[2]["diff-digest"]);
  EXPECT_EQ(store.tree_dir(one), std::filesystem::canonical(place_) / "overlay" / one.top_layer() / "diff");
  const auto ids = one.layer_ids();
  EXPECT_EQ(as_text(read_file(place_ / "overlay" / ids[2] / "lower")),
            "l/" + link_of(ids[1]) + ":l/" + link_of(ids[0]));
  EXPECT_EQ(as_text(read_file(place_ / "overlay" / ids[2] / "link")), link_of(ids[2]));
  EXPECT_EQ(link_of(ids[2]).size(), 26u);
  EXPECT_EQ(std::filesystem::canonical(place_ / "overlay/l" / link_of(ids[0])),
            std::filesystem::canonical(place_ / "overlay" / ids[0] / "diff"));
}

TEST_F(ImageStoreTest, DocumentsLieUnderTheNamesThatPodmanLooksFor) {
  const ImageStore store(place_);
  const auto one = put(store, "one");
  const auto folder = place_ / "overlay-images" / one.id();
  EXPECT_EQ(as_text(read_file(folder / "manifest")), "manifest one");
  EXPECT_EQ(as_text(read_file(folder / ("=" + base64_encode("manifest-" + one.manifests[0].to_string())))),
            "manifest one");
  EXPECT_EQ(as_text(read_file(folder / ("=" + base64_encode(one.config.to_string())))), "config one");
}

TEST_F(ImageStoreTest, OnlyWhatIsMountedIsListedAndListsThatHoldAreLeftAlone) {
  const ImageStore store(place_);
  const auto one = put(store, "one");
  put(store, "two");
  store.publish([&](const auto& tree) { return tree == store.tree_dir(one); });
  ASSERT_EQ(images_json().size(), 1u);
  EXPECT_EQ(images_json()[0]["id"], one.id());
  const auto before = stamp();
  EXPECT_EQ(before.size(), 64u);
  store.publish([&](const auto& tree) { return tree == store.tree_dir(one); });
  EXPECT_EQ(stamp(), before);
  publish(store);
  EXPECT_NE(stamp(), before);
  EXPECT_EQ(images_json().size(), 2u);
}

TEST_F(ImageStoreTest, DamagedListsAreWrittenAnew) {
  const ImageStore store(place_);
  put(store, "one");
  publish(store);
  for (const auto* damage : {"", "[{", "{}", "[1]", "[{\"id\":5}]"}) {
    write_file_atomically(place_ / "overlay-images/images.json", as_bytes(damage));
    write_file_atomically(place_ / "overlay-layers/layers.json", as_bytes(damage));
    publish(store);
    EXPECT_EQ(images_json().size(), 1u) << damage;
    EXPECT_EQ(layers_json().size(), 2u) << damage;
  }
}

TEST_F(ImageStoreTest, ADamagedRecordOrDocumentHidesThatImageAlone) {
  const ImageStore store(place_);
  const auto one = put(store, "one");
  const auto two = put(store, "two");
  const auto three = put(store, "three");
  write_file_atomically(place_ / "varve" / (one.id() + ".json"), as_bytes("{"));
  write_file_atomically(place_ / "overlay-images" / two.id() / "manifest", as_bytes("another"));
  const auto images = store.images();
  ASSERT_EQ(images.size(), 1u);
  EXPECT_EQ(images[0].config, three.config);
  std::filesystem::rename(place_ / "varve" / (three.id() + ".json"), place_ / "varve/other.json");
  EXPECT_THAT(store.images(), IsEmpty());
}

TEST_F(ImageStoreTest, ASecondManifestOfTheSameContentIsKeptBesideTheFirst) {
  const ImageStore store(place_);
  auto one = put(store, "one");
  one.manifests.push_back(digest_of("packed otherwise"));
  store.put(one, as_bytes("packed otherwise"), as_bytes("config one"));
  publish(store);
  EXPECT_EQ(images_json()[0]["digest"], digest_of("manifest one").to_string());
  EXPECT_EQ(images_json()[0]["big-data-digests"]["manifest-" + digest_of("packed otherwise").to_string()],
            digest_of("packed otherwise").to_string());
  EXPECT_EQ(images_json()[0]["layer"], image("one").top_layer());
}

TEST_F(ImageStoreTest, RemovedImagesLeaveNothing) {
  const ImageStore store(place_);
  const auto one = put(store, "one");
  publish(store);
  store.remove(one);
  publish(store);
  EXPECT_THAT(images_json(), IsEmpty());
  EXPECT_THAT(layers_json(), IsEmpty());
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place_))
    if (!entry.is_directory()) left.push_back(entry.path().filename());
  EXPECT_THAT(
      left, testing::UnorderedElementsAre("images.json", "layers.json", "images.lock", "layers.lock", "storage.lock"));
}

TEST_F(ImageStoreTest, ATreeThatIsNotEmptyIsNotTakenAway) {
  const ImageStore store(place_);
  const auto one = put(store, "one");
  write_file_atomically(store.tree_dir(one) / "precious", as_bytes("x"));
  EXPECT_ANY_THROW(store.remove(one));
  EXPECT_EQ(store.images().size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(store.tree_dir(one) / "precious"));
}

TEST_F(ImageStoreTest, LinksThatSomebodyPlantedAreNotFollowed) {
  { const ImageStore store(place_); }
  const auto elsewhere = dir_ / "elsewhere";
  std::filesystem::create_directories(elsewhere);
  for (const auto* folder : {"overlay-images", "overlay-layers", "overlay", "overlay/l", "varve"}) {
    std::filesystem::remove_all(place_ / folder);
    std::filesystem::create_directory_symlink(elsewhere, place_ / folder);
    EXPECT_THROW(ImageStore{place_}, UsageError) << folder;
    std::filesystem::remove(place_ / folder);
    const ImageStore made_again(place_);
  }
  std::filesystem::remove(place_ / "storage.lock");
  std::filesystem::create_symlink(elsewhere / "new", place_ / "storage.lock");
  EXPECT_ANY_THROW(ImageStore{place_});
  EXPECT_FALSE(std::filesystem::exists(elsewhere / "new"));
  std::filesystem::remove(place_ / "storage.lock");
  const ImageStore store(place_);
  const auto one = image("one");
  std::filesystem::create_directory_symlink(elsewhere, place_ / "overlay" / one.top_layer());
  EXPECT_THROW(store.make_folders(one), UsageError);
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
}

TEST_F(ImageStoreTest, FoldersThatOthersMayWriteToAreRefused) {
  { const ImageStore store(place_); }
  ::chmod((place_ / "varve").c_str(), 0777);
  EXPECT_THROW(ImageStore{place_}, UsageError);
}

}  // namespace
}  // namespace varve::fuse::podman
