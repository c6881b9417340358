#include "fuse/podman/store_users.h"

#include <gmock/gmock.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::fuse::podman {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

StoredImage image_with(std::size_t layers) {
  StoredImage image;
  image.manifests = {digest_of("manifest")};
  image.layers = layers;
  return image;
}

class StoreUsersTest : public testing::Test {
 protected:
  void layer(const std::string& id, const std::string& parent) {
    parse_layer_list(fmt::format(R"([{{"id":"{}","parent":"{}"}}])", id, parent), "layers.json", lists_);
  }
  void container(const std::string& id, const std::string& layer, const std::string& name) {
    parse_container_list(fmt::format(R"([{{"id":"{}","layer":"{}","names":["{}"]}}])", id, layer, name),
                         "containers.json", lists_);
  }
  const StoredImage image_ = image_with(2);
  StorageLists lists_;
};

TEST_F(StoreUsersTest, ContainersAndImagesOnTopAreUsers) {
  layer("c-layer", image_.top_layer());
  layer("child", image_.top_layer());
  layer("grandchild", "child");
  layer("other", "");
  container("0123456789abcdef", "c-layer", "lab");
  container("1111", "other", "else");
  parse_image_list(
      R"([{"id":"2222","layer":"grandchild","names":["localhost/made:1"]},{"id":"3333333333333333","layer":"child"},
                       {"id":"4444","layer":"other","names":null}])",
      "images.json", lists_);
  EXPECT_THAT(find_users(image_, lists_), ElementsAre("container lab", "image localhost/made:1", "image 333333333333"));
}

TEST_F(StoreUsersTest, ATagOfPodmanOnTheImageIsAUser) {
  parse_image_list("[{\"id\":\"2222\",\"layer\":\"" + image_.top_layer() + "\",\"names\":[\"localhost/tag:1\"]}]",
                   "images.json", lists_);
  EXPECT_THAT(find_users(image_, lists_), ElementsAre("image localhost/tag:1"));
}

TEST_F(StoreUsersTest, ParentsOfEachOtherComeToAnEnd) {
  layer("a", "b");
  layer("b", "a");
  container("0123", "a", "lab");
  EXPECT_THAT(find_users(image_, lists_), IsEmpty());
}

TEST_F(StoreUsersTest, EmptyListsAreListsAndBrokenOnesAreNone) {
  for (const auto* empty : {"", " \n", "null", "[]"}) parse_layer_list(empty, "layers.json", lists_);
  EXPECT_THAT(lists_.layers, IsEmpty());
  for (const auto* broken : {"{", "{}", "[5]", R"([{"id":5}])", R"([{"parent":"x"}])"})
    EXPECT_THROW(parse_layer_list(broken, "layers.json", lists_), CorruptData) << broken;
}

TEST_F(StoreUsersTest, ListsOfBothRootsCount) {
  const test::TempDir dir;
  const StorageConf conf{.driver = {}, .graph_root = dir / "graph", .run_root = dir / "run", .image_stores = {}};
  EXPECT_THAT(read_storage_lists(conf).layers, IsEmpty());
  for (const auto* folder : {"graph/overlay-layers", "run/overlay-containers"})
    std::filesystem::create_directories(dir / folder);
  write_file_atomically(dir / "graph/overlay-layers/layers.json", as_bytes(R"([{"id":"a"}])"));
  write_file_atomically(dir / "graph/overlay-layers/volatile-layers.json", as_bytes(R"([{"id":"b"}])"));
  write_file_atomically(dir / "run/overlay-containers/volatile-containers.json", as_bytes(R"([{"id":"c"}])"));
  const auto lists = read_storage_lists(conf);
  EXPECT_EQ(lists.layers.size(), 2u);
  EXPECT_EQ(lists.containers.size(), 1u);
}

}  // namespace
}  // namespace varve::fuse::podman
