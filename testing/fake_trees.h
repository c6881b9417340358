#pragma once
// Trees that are plain folders, of images that a test names.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/errors.h"
#include "core/base/threads/guarded.h"
#include "snapshotter/trees.h"

namespace varve::test {

// An image of layers that are told apart by `name`.
inline snapshotter::KnownImage made_image(const std::string& name, const std::vector<std::string>& layers) {
  std::vector<Digest> diff_ids;
  for (const auto& layer : layers) diff_ids.push_back(digest_of(layer));
  const auto digest = digest_of("manifest of " + name);
  return {.image = digest,
          .reference = "registry.example/" + name + "@" + digest.to_string(),
          .chain = snapshotter::chain_ids(diff_ids)};
}

// Safe to use from any thread. Outlives the snapshots that are made over it, as the daemon does.
class FakeTrees final : public snapshotter::Trees {
 public:
  explicit FakeTrees(std::filesystem::path dir) : dir_(std::move(dir)) {}

  void add(const snapshotter::KnownImage& image) {
    images_.with([&](auto& images) { images[image.image] = image; });
  }
  void forget(const Digest& image) {
    images_.with([&](auto& images) { images.erase(image); });
  }
  std::filesystem::path dir_of(const snapshotter::TreeId& tree) const {
    return dir_ / (tree.image.hex() + "-" + std::to_string(tree.layers));
  }
  std::size_t look_ups() { return *look_ups_.lock(); }

  bool tags_moved = false;    // no tag means its image any more
  bool by_tag_alone = false;  // indexes count for who looks up by tag

  // Called in every look-up and hold, before it answers.
  std::function<void()> before_look_up = [] {};
  std::function<void()> before_hold = [] {};

  snapshotter::KnownImage look_up(const std::string& reference, const Digest& manifest,
                                  std::chrono::milliseconds) override {
    ++*look_ups_.lock();
    before_look_up();
    if (tags_moved && !reference.ends_with(manifest.to_string())) fail<CorruptData>("{}: another image", reference);
    if (by_tag_alone && reference.ends_with(manifest.to_string())) fail<Error>("{}: nobody vouches for it", reference);
    return images_.with([&](const auto& images) {
      const auto found = images.find(manifest);
      if (found == images.end()) fail<NotFound>("{}: no index of it", reference);
      return found->second;
    });
  }
  std::vector<std::pair<std::string, Digest>> opened() override {
    std::vector<std::pair<std::string, Digest>> all;
    images_.with([&](const auto& images) {
      for (const auto& [digest, image] : images) all.emplace_back(image.reference, digest);
    });
    return all;
  }
  std::filesystem::path hold(const snapshotter::TreeId& tree, const std::string& reference) override {
    before_hold();
    if (!images_.with([&](const auto& images) { return images.contains(tree.image); }))
      fail<NotFound>("{}: no index of it", reference);
    const auto dir = dir_of(tree);
    std::filesystem::create_directories(dir);
    std::ofstream(dir / "from-the-tree") << tree.layers << '\n';
    held_.lock()->insert(tree);
    return dir;
  }
  void release(const snapshotter::TreeId& tree) override { held_.lock()->erase(tree); }
  std::vector<snapshotter::TreeId> held() override {
    const auto held = *held_.lock();
    return {held.begin(), held.end()};
  }

 private:
  const std::filesystem::path dir_;
  Guarded<std::map<Digest, snapshotter::KnownImage>> images_;
  Guarded<std::set<snapshotter::TreeId>> held_;
  Guarded<std::size_t> look_ups_;
};

}  // namespace varve::test
