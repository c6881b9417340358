#pragma once
#include <gtest/gtest.h>

#include "core/index/format/layer_entries.h"
#include "core/index/local_index.h"
#include "core/index/publish_index.h"
#include "testing/artifact_repository.h"
#include "testing/one_span_map.h"
#include "testing/temp_dir.h"
#include "testing/trees.h"

namespace varve::test {

// An image of three layers, the first and the last of them the same, in a repository in memory, and all that its index
// consists of.
class IndexedImageFixture : public testing::Test {
 protected:
  static constexpr std::uint64_t kStreamBytes = 100'000;

  void SetUp() override {
    for (const char* name : {"a", "b"}) {
      oci::Descriptor layer;
      layer.media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
      layer.digest = digest_of(std::string("blob ") + name);
      layer.size = 1000;
      image_.manifest.layers.push_back(layer);
      image_.config.diff_ids.push_back(digest_of(std::string("stream ") + name));
    }
    image_.manifest.layers.push_back(image_.manifest.layers[0]);
    image_.config.diff_ids.push_back(image_.config.diff_ids[0]);
    image_.repository = repository_;
    image_.document.descriptor.media_type = oci::kDockerManifestType;
    image_.document.descriptor.digest = digest_of("image");
    image_.document.descriptor.size = 500;

    Tree tree;
    tree.layers = 3;
    put(tree, "etc/hosts", make_file(200, {{1, {0, 512, 200}}}));
    put(tree, "sparse", make_file(10'000, {{2, {100, 1024, 200}}}));
    erofs_ = write_erofs(tree, tags(), {kStreamBytes, kStreamBytes, kStreamBytes});
  }

  std::vector<std::string> tags() const {
    std::vector<std::string> tags;
    for (const auto& diff_id : image_.config.diff_ids) tags.push_back(diff_id.hex());
    return tags;
  }

  LayerMap map_of(std::size_t layer) const {
    return one_span_map(image_.manifest.layers[layer].digest, image_.config.diff_ids[layer], kStreamBytes);
  }

  LayerIndexBlobs publish_layer(const LayerMap& map) {
    LayerEntries entries{.layer_digest = map.layer_digest, .entries = {}};
    return {.layer_digest = map.layer_digest,
            .map = repository_->add_blob(map.encode()),
            .windows = std::nullopt,
            .entries = repository_->add_blob(entries.encode())};
  }

  ImageIndexBlobs blobs_of(const std::vector<LayerMap>& maps) {
    ImageIndexBlobs blobs;
    blobs.tree = repository_->add_blob(pack_tree(erofs_));
    blobs.tree_bytes = erofs_.bytes.size();
    blobs.ranges = repository_->add_blob(pack_ranges(erofs_.ranges));
    for (const auto& map : maps) blobs.layers.push_back(publish_layer(map));
    blobs.tool = "varve test";
    return blobs;
  }

  oci::Descriptor publish(const ImageIndexBlobs& blobs) {
    return repository_->put_manifest(make_index_manifest(image_, blobs).to_json(), oci::kOciManifestType, "");
  }
  oci::Descriptor publish() { return publish(blobs_of({map_of(0), map_of(1), map_of(2)})); }

  TempDir dir_;
  std::shared_ptr<ArtifactRepository> repository_ = std::make_shared<ArtifactRepository>();
  oci::Image image_;
  ErofsImage erofs_;
};

}  // namespace varve::test
