#include <thread>

#include "testing/fake_registry.h"
#include "testing/layer_stream_fixture.h"

namespace varve::fuse {
namespace {

using ::testing::HasSubstr;
using Kind = test::FakeRegistry::Kind;
using Switches = test::FakeRegistry::Switches;
using Break = test::FakeHttpResponse::Break;

// The data path over the real client and a registry that does what registries do.
class LayerStreamRegistryTest : public LayerStreamTestBase {
 protected:
  std::shared_ptr<LayerStream> open_cold() {
    stream_.reset();
    streams_.reset();
    std::filesystem::remove_all(dir_ / "store");
    open();
    registry_.forget_records();
    oci::RegistryOptions options;
    options.plain_http = true;
    options.stall_timeout_ms = 300;
    options.first_answer_ms = 20'000;  // a living mirror may be slow on a loaded machine
    oci::MirrorRule rule{.prefix = registry_.host(), .locations = {}, .place = "test"};
    for (const auto& mirror : mirrors_) rule.locations.push_back("http://" + mirror->host());
    if (!mirrors_.empty()) options.mirrors.rules.push_back(rule);
    const auto source = oci::open_repository(oci::Reference::parse(registry_.reference("team/app")), options);
    stream_ = streams_->stream(layer_.map, layer_.blob_descriptor, source, layer_.index_blobs, source);
    return stream_;
  }
  // Reads the layer in pieces, from several threads, and compares.
  void expect_right() {
    const auto stream = open_cold();
    std::vector<std::jthread> readers;
    for (std::uint64_t reader = 0; reader < 4; ++reader)
      readers.emplace_back([&, reader] {
        for (std::uint64_t at = reader * 30'000; at + 70'000 < layer_.stream.size(); at += 120'000)
          EXPECT_EQ(try_read(*stream, at, 70'000), part(layer_, at, 70'000)) << at;
      });
    readers.clear();
    EXPECT_EQ(stream->stats().errors, 0u) << stream->stats().last_error;
  }
  template <typename Change>
  void expect_right_with(const char* what, Change&& change) {
    SCOPED_TRACE(what);
    registry_.set([&](Switches& switches) {
      switches = Switches{};
      change(switches);
    });
    expect_right();
  }

  const test::MadeLayer layer_ = test::make_gzip_layer(test::gzip_of(test::some_stream(1'500'000)), kSpan);
  test::FakeRegistry registry_;
  std::vector<std::unique_ptr<test::FakeRegistry>> mirrors_;  // asked first, in their order

  void SetUp() override { fill(registry_); }
  void fill(test::FakeRegistry& registry) {
    registry.add_blob("team/app", layer_.blob);
    registry.add_blob("team/app", layer_.windows);
  }
  test::FakeRegistry& add_mirror() {
    mirrors_.push_back(std::make_unique<test::FakeRegistry>());
    fill(*mirrors_.back());
    return *mirrors_.back();
  }
};

TEST_F(LayerStreamRegistryTest, FetchesOnlyRangesAndCountsThemExactly) {
  const auto stream = open_cold();
  const auto range = layer_.map->spans.at(10).stream_range;
  EXPECT_EQ(read(*stream, range.offset, range.length), part(layer_, range.offset, range.length));
  EXPECT_EQ(registry_.count(Kind::kBlob), 2u);
  EXPECT_EQ(stream->stats().requests, 2u);
  EXPECT_EQ(stream->stats().fetched_bytes, registry_.sent_bytes(Kind::kBlob));
  EXPECT_EQ(stream->stats().fetched_bytes, layer_.map->spans.at(10).compressed_range.length + layer_.windows.size());
}

TEST_F(LayerStreamRegistryTest, SixtyFourReadersShareOneDownload) {
  const auto stream = open_cold();
  const auto range = layer_.map->spans.at(7).stream_range;
  registry_.hold_blobs();
  std::vector<std::jthread> readers;
  for (int reader = 0; reader < 64; ++reader)
    readers.emplace_back([&] { EXPECT_EQ(try_read(*stream, range.offset, 4'096), part(layer_, range.offset, 4'096)); });
  registry_.wait_for_held(2);
  registry_.release_blobs();
  readers.clear();
  EXPECT_EQ(registry_.count(Kind::kBlob), 2u);
}

TEST_F(LayerStreamRegistryTest, ServesRightBytesWhateverTheRegistryDoes) {
  expect_right_with("503", [](Switches& s) { s.failure = {.kind = Kind::kBlob, .status = 503, .count = 3}; });
  expect_right_with(
      "429", [](Switches& s) { s.failure = {.kind = Kind::kBlob, .status = 429, .count = 2, .retry_after = "0"}; });
  expect_right_with("body ends early", [](Switches& s) {
    s.breaks = Break::kClose;
    s.break_after = 3'000;
    s.break_count = 3;
  });
  expect_right_with("another range", [](Switches& s) { s.wrong_content_range = 1; });
  expect_right_with("whole blob for a range", [](Switches& s) { s.ignore_ranges = 2; });
  expect_right_with("one wrong byte, once", [&](Switches& s) {
    s.flipped_byte[layer_.map->layer_digest] = layer_.map->spans.at(5).compressed_range.offset + 9;
    s.flip_count = 1;
  });
  expect_right_with("redirects that expire", [](Switches& s) {
    s.redirect_blobs = true;
    s.redirect_uses =
        10;  // more than are under way at a time: an address that is new must not be used up before it is used
  });
  expect_right_with("tokens that age", [](Switches& s) {
    s.auth = test::FakeRegistry::Auth::kToken;
    s.anonymous_tokens = true;
    s.token_uses = 10;
  });
}

TEST_F(LayerStreamRegistryTest, AByteThatStaysWrongIsNeverServed) {
  const auto& span = layer_.map->spans.at(5);
  registry_.set([&](Switches& s) { s.flipped_byte[layer_.map->layer_digest] = span.compressed_range.offset + 9; });
  const auto stream = open_cold();
  Outcome outcome;
  stream->ensure(span.stream_range, Priority::kReader, outcome.done());
  EXPECT_TRUE(outcome.failed_with<CorruptData>());
  EXPECT_THAT(outcome.wait(), HasSubstr(layer_.map->layer_digest.to_string()));
  EXPECT_FALSE(stream->is_readable(span.stream_range));
}

// Of the blob and of the windows: each span has its digests, and the source that broke them is left.
TEST_F(LayerStreamRegistryTest, WrongBytesOfMirrorsAreReplacedByThoseOfTheNextSource) {
  const auto& span = layer_.map->spans.at(5);
  for (int i = 0; i < 3; ++i)
    add_mirror().set([&](Switches& s) {
      s.flipped_byte[layer_.map->layer_digest] = span.compressed_range.offset + 9;
      s.flipped_byte[digest_of(layer_.windows)] = span.window.offset + 1;
    });
  const auto stream = open_cold();
  EXPECT_EQ(read(*stream, span.stream_range.offset, span.stream_range.length),
            part(layer_, span.stream_range.offset, span.stream_range.length));
  EXPECT_EQ(stream->stats().errors, 0u);
  for (const auto& mirror : mirrors_) mirror->forget_records();
  const auto& next = layer_.map->spans.at(9).stream_range;
  EXPECT_EQ(read(*stream, next.offset, next.length), part(layer_, next.offset, next.length));
  for (const auto& mirror : mirrors_) EXPECT_EQ(mirror->count(Kind::kBlob), 0u);
  EXPECT_GT(stream->stats().mirror_bytes, 0u);
  EXPECT_LT(stream->stats().mirror_bytes, stream->stats().fetched_bytes);
}

TEST_F(LayerStreamRegistryTest, ServesRightBytesWhateverAMirrorDoes) {
  auto& mirror = add_mirror();
  const auto expect = [&](const char* what, auto&& change) {
    SCOPED_TRACE(what);
    mirror.set([&](Switches& switches) {
      switches = Switches{};
      change(switches);
    });
    expect_right();
  };
  expect("all is well", [](Switches&) {});
  EXPECT_EQ(registry_.count(Kind::kBlob), 0u);
  expect("503", [](Switches& s) { s.failure = {.kind = Kind::kBlob, .status = 503, .count = -1}; });
  expect("body ends early", [](Switches& s) {
    s.breaks = Break::kClose;
    s.break_after = 3'000;
    s.break_count = -1;
  });
  expect("hangs in a body", [](Switches& s) {
    s.breaks = Break::kStall;
    s.break_after = 3'000;
    s.break_count = 2;
  });
  expect("another range", [](Switches& s) { s.wrong_content_range = -1; });
  expect("another size", [](Switches& s) { s.wrong_total = -1; });
  expect("whole blob for a range", [](Switches& s) { s.ignore_ranges = -1; });
  expect("another blob", [&](Switches& s) { s.flipped_byte[layer_.map->layer_digest] = 20'000; });
  mirror.stop();
  expect_right();
}

}  // namespace
}  // namespace varve::fuse
