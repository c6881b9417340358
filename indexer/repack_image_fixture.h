#pragma once
// Images made up layer by layer, indexed here and packed anew: for tests of indexer::repack_image().
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/codec/tar_writer.h"
#include "core/oci/layout.h"
#include "indexer/index_image.h"
#include "indexer/repack_image.h"
#include "testing/codec_support.h"
#include "testing/temp_dir.h"

namespace varve::test {

// A tar, entry by entry.
class Tar {
 public:
  using Change = void (*)(codec::TarEntry&);
  Tar& add(FileType type, std::string name, std::string link = {}, Change change = nullptr) {
    codec::TarEntry entry;
    entry.type = type;
    entry.name = std::move(name);
    entry.link_name = std::move(link);
    entry.mode = type == FileType::kDirectory ? 0755 : 0644;
    entry.mtime_seconds = 1'600'000'000;
    if (change != nullptr) change(entry);
    writer_.begin(entry);
    return *this;
  }
  Tar& dir(std::string name, Change change = nullptr) { return add(FileType::kDirectory, std::move(name), {}, change); }
  Tar& link(std::string name, std::string target) {
    return add(FileType::kHardLink, std::move(name), std::move(target));
  }
  Tar& file(std::string name, std::string_view content, Change change = nullptr) {
    codec::TarEntry entry;
    entry.name = std::move(name);
    entry.mode = 0644;
    entry.mtime_seconds = 1'600'000'000;
    entry.size = content.size();
    if (change != nullptr) change(entry);
    writer_.begin(entry);
    writer_.content(as_bytes(content));
    return *this;
  }
  Bytes bytes() {
    writer_.finish();
    return bytes_;
  }

 private:
  Bytes bytes_;
  codec::TarWriter writer_{[this](ByteView part) { append(bytes_, part); }};
};

inline std::string some(std::size_t bytes, std::uint32_t seed) {
  return std::string(as_text(codec::test::program_like_bytes(bytes, seed)));
}

inline void expect_same_tree(const index::FlatTree& before, const index::FlatTree& after,
                             const std::set<std::string>& but = {}) {
  int reported = 0;
  for (const auto& [path, entry] : before.entries) {
    if (but.contains(path) || reported > 10) continue;
    const auto found = after.entries.find(path);
    std::string why = "is missing";
    if (found != after.entries.end() && index::same_entry(entry, found->second, &why)) continue;
    ADD_FAILURE() << path << ": " << why;
    ++reported;
  }
  for (const auto& [path, entry] : after.entries)
    if (!before.entries.contains(path) && !but.contains(path)) ADD_FAILURE() << path << ": not of the old image";
}

class RepackFixture : public ::testing::Test {
 protected:
  // Everything that belongs to an image that is looked at.
  struct Opened {
    oci::Image image;
    std::unique_ptr<index::LocalIndex> local;
    index::LoadedIndex index;
    index::FlatTree tree;
  };

  oci::Image put_image(const std::vector<std::pair<Bytes, Bytes>>& layers, const std::string& tag = "t") {  // tar, blob
    nlohmann::json config{{"architecture", "amd64"},
                          {"os", "linux"},
                          {"created", "2024-01-02T03:04:05Z"},
                          {"x-unknown", {{"z", 1}, {"a", 2}}},
                          {"config", {{"Env", {"PATH=/bin", "B=<&>"}}, {"Labels", {{"old", "label"}}}}},
                          {"history", {{{"created_by", "base"}}, {{"created_by", "ENV"}, {"empty_layer", true}}}}};
    nlohmann::json manifest{{"schemaVersion", 2},
                            {"mediaType", oci::kOciManifestType},
                            {"annotations", {{"kept", "yes"}}},
                            {"layers", nlohmann::json::array()}};
    config["rootfs"] = {{"type", "layers"}, {"diff_ids", nlohmann::json::array()}};
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto blob = oci::put_bytes(*old_, layers[i].second, "application/vnd.oci.image.layer.v1.tar+gzip");
      config["rootfs"]["diff_ids"].push_back(digest_of(layers[i].first).to_string());
      if (i > 0) config["history"].push_back({{"created_by", fmt::format("layer {}", i)}});
      manifest["layers"].push_back(
          {{"mediaType", blob.media_type}, {"digest", blob.digest.to_string()}, {"size", blob.size}});
    }
    const auto blob = oci::put_bytes(*old_, as_bytes(config.dump()), "application/vnd.oci.image.config.v1+json");
    manifest["config"] = {{"mediaType", blob.media_type}, {"digest", blob.digest.to_string()}, {"size", blob.size}};
    old_->put_manifest(as_bytes(manifest.dump()), oci::kOciManifestType, tag);
    return oci::open_image(old_, tag, oci::Platform::of_this_machine());
  }

  oci::Image gzip_image(const std::vector<Bytes>& tars, const std::string& tag = "t") {
    std::vector<std::pair<Bytes, Bytes>> layers;
    for (const auto& tar : tars) layers.emplace_back(tar, codec::test::gzip(tar));
    return put_image(layers, tag);
  }

  // Indexes it, here only, and reads all that is known of it.
  Opened open(const oci::Image& image) {
    Opened opened{.image = image,
                  .local = std::make_unique<index::LocalIndex>(folder_ / fmt::format("root{}", ++roots_)),
                  .index = {},
                  .tree = {}};
    Progress progress;
    indexer::index_image(image, opened.local->repository(), *opened.local, {.jobs = 1}, {progress, cancel_});
    opened.index = index::load_index(*opened.local, image);
    opened.tree = index::read_flat_tree(*opened.local, opened.index, image);
    return opened;
  }
  Opened open_new(const indexer::RepackReport& report) {
    return open(oci::open_image(new_, report.image.to_string(), oci::Platform::of_this_machine()));
  }

  indexer::RepackReport repack(const Opened& old, const index::Placement& placement,
                               indexer::RepackOptions options = {}, const Opened* previous = nullptr,
                               oci::Repository* destination = nullptr, std::string_view tag = "new") {
    options.work_dir = folder_ / "work";
    if (options.limits.min_layer_bytes == indexer::PackLimits().min_layer_bytes) options.limits.min_layer_bytes = 1;
    std::optional<indexer::LayoutRecord> record;
    if (previous != nullptr) record = indexer::find_layout_record(previous->image);
    const indexer::RepackInput input{.image = old.image,
                                     .index = old.index,
                                     .local = *old.local,
                                     .tree = old.tree,
                                     .placement = placement,
                                     .previous = previous == nullptr ? nullptr : &previous->image,
                                     .previous_layout = record ? &*record : nullptr};
    Progress progress;
    auto report =
        indexer::repack_image(input, destination == nullptr ? *new_ : *destination, tag, options, {progress, cancel_});
    EXPECT_EQ(progress.done_bytes(), progress.expected_bytes());
    return report;
  }

  static nlohmann::json parsed(const Bytes& bytes) { return nlohmann::json::parse(as_text(bytes)); }
  std::size_t files_in_work_dir() {
    std::size_t count = 0;
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder_ / "work"))
      count += item.is_regular_file();
    return count;
  }

  TempDir folder_;
  std::shared_ptr<oci::Repository> old_ = oci::create_layout(folder_ / "old");
  std::shared_ptr<oci::Repository> new_ = oci::create_layout(folder_ / "new");
  int roots_ = 0;
  CancelFlag cancel_;
};

}  // namespace varve::test
