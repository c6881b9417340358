#include "indexer/optimize_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/oci/layout.h"
#include "testing/codec_support.h"
#include "testing/forwarding_repository.h"
#include "testing/scripted_repository.h"
#include "testing/tar_support.h"
#include "testing/temp_dir.h"

namespace varve::indexer {
namespace {

using codec::test::TarBuilder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Bytes tar_of(std::uint32_t seed) {
  TarBuilder tar;
  tar.file("f" + std::to_string(seed), as_text(codec::test::program_like_bytes(
                                           20'000'000, seed)));  // more than the thread that decodes may be ahead
  return to_bytes(tar.end().bytes());
}

// A destination whose drafts take so many bytes.
class FullRepository final : public test::ForwardingRepository {
 public:
  FullRepository(std::shared_ptr<oci::Repository> real, std::uint64_t room)
      : ForwardingRepository(std::move(real)), room_(room) {}
  std::unique_ptr<oci::BlobDraft> draft_blob(const std::filesystem::path& dir) override {
    return std::make_unique<Draft>(real_->draft_blob(dir), room_);
  }

 private:
  class Draft final : public oci::BlobDraft {
   public:
    Draft(std::unique_ptr<oci::BlobDraft> real, std::uint64_t& room) : real_(std::move(real)), room_(room) {}
    void write(ByteView bytes) override {
      if (bytes.size() > room_) throw std::system_error(ENOSPC, std::generic_category(), "write");
      room_ -= bytes.size();
      real_->write(bytes);
    }
    bool commit(const oci::Descriptor& blob) override { return real_->commit(blob); }

   private:
    std::unique_ptr<oci::BlobDraft> real_;
    std::uint64_t& room_;
  };
  std::uint64_t room_;
};

class OptimizeImageTest : public ::testing::Test {
 protected:
  oci::Image image_of(const std::vector<Bytes>& tars, std::size_t wrong = 99) {
    oci::Image image;
    std::string layers;
    for (std::size_t i = 0; i < tars.size(); ++i) {
      auto layer = repository_->serve(codec::test::gzip(tars[i], 1));
      layer.media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
      image.manifest.layers.push_back(layer);
      image.config.diff_ids.push_back(i == wrong ? digest_of("another tar") : digest_of(tars[i]));
      layers += fmt::format("{}{{\"mediaType\":\"{}\",\"digest\":\"{}\",\"size\":{}}}", i == 0 ? "" : ",",
                            layer.media_type, layer.digest.to_string(), layer.size);
    }
    image.manifest.config = repository_->serve(to_bytes(as_bytes("{}")));
    const auto text = fmt::format(
        R"({{"schemaVersion":2,"config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{}",)"
        R"("size":2}},"layers":[{}]}})",
        image.manifest.config.digest.to_string(), layers);
    image.repository = repository_;
    image.document.bytes = to_bytes(as_bytes(text));
    image.document.descriptor.digest = digest_of(text);
    return image;
  }
  OptimizeReport run(const oci::Image& image, oci::Repository& destination, OptimizeOptions options = {}) {
    options.work_dir = folder_.path();
    Progress progress;
    return optimize_image(image, destination, "t", options, {progress, cancel_});
  }
  bool visible() {
    try {
      destination_->manifest("t");
      return true;
    } catch (const NotFound&) {
      return false;
    }
  }

  test::TempDir folder_;
  std::shared_ptr<test::ScriptedRepository> repository_ = std::make_shared<test::ScriptedRepository>();
  std::shared_ptr<oci::LayoutRepository> destination_ = oci::LayoutRepository::create(folder_ / "destination");
  CancelFlag cancel_;
};

TEST_F(OptimizeImageTest, LayersStayTheirTars) {
  const auto image = image_of({tar_of(1), tar_of(2)});
  const auto report = run(image, *destination_);
  ASSERT_EQ(report.layers.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(report.layers[i].diff_id, image.config.diff_ids[i]);
    EXPECT_NE(report.layers[i].digest, image.manifest.layers[i].digest);
  }
  EXPECT_TRUE(visible());
}

TEST_F(OptimizeImageTest, PlainGzipBecomesMembersAndMembersStay) {
  OptimizeOptions gzip;
  gzip.writer = {.format = WrittenFormat::kGzip, .level = 1};
  TarBuilder small;
  small.file("small", "x");
  auto image = image_of({tar_of(1), to_bytes(small.end().bytes())});
  const auto plain = run(image, *destination_, gzip);
  EXPECT_FALSE(plain.layers[0].kept);
  EXPECT_TRUE(plain.layers[1].kept);  // all of it is one small member
  EXPECT_EQ(plain.copied_bytes, plain.layers[1].bytes + 2);
  image.repository = destination_;
  for (std::size_t i = 0; i < 2; ++i) {
    image.manifest.layers[i].digest = plain.layers[i].digest;
    image.manifest.layers[i].size = plain.layers[i].bytes;
  }
  const auto again = run(image, *destination_, gzip);
  for (const auto& layer : again.layers) EXPECT_TRUE(layer.kept);
  EXPECT_EQ(again.copied_bytes, 0u);
}

TEST_F(OptimizeImageTest, AnotherTarThanTheConfigSaysIsRefused) {
  EXPECT_THAT(
      [&] {
        run(image_of({tar_of(1), tar_of(2)}, 1), *destination_);
      },
      ThrowsMessage<CorruptData>(HasSubstr("config says")));
  EXPECT_FALSE(visible());
}

TEST_F(OptimizeImageTest, AFullDestinationEndsTheThreadThatDecodes) {
  FullRepository full(destination_, 1'000'000);
  EXPECT_THROW(run(image_of({tar_of(1)}), full), std::system_error);
  EXPECT_FALSE(visible());
}

TEST_F(OptimizeImageTest, CancelledItStops) {
  cancel_.cancel();
  EXPECT_THROW(run(image_of({tar_of(1)}), *destination_), Cancelled);
  EXPECT_FALSE(visible());
}

}  // namespace
}  // namespace varve::indexer
