#include "fuse/stream/layer_stream.h"

#include <random>
#include <thread>

#include "core/base/files/file.h"
#include "testing/layer_stream_fixture.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;

class LayerStreamTest : public LayerStreamTestBase {};

// Every format that spans can be read from, and the one that must be decoded whole.
struct Format {
  const char* name;
  test::MadeLayer (*make)(std::uint64_t bytes);
};
const Format kFormats[] = {
    {"tar", [](std::uint64_t bytes) { return test::make_tar_layer(test::some_stream(bytes), 50'000); }},
    {"gzip",
     [](std::uint64_t bytes) { return test::make_gzip_layer(test::gzip_of(test::some_stream(bytes)), 50'000); }},
    {"gzip9",
     [](std::uint64_t bytes) { return test::make_gzip_layer(test::gzip_of(test::some_stream(bytes), 9), 50'000); }},
    {"gzip_records",
     [](std::uint64_t bytes) {
       return test::make_followed_gzip_layer(test::gzip_of(test::some_stream(bytes)), 50'000, 0);
     }},
    {"gzip_followers",
     [](std::uint64_t bytes) {
       return test::make_followed_gzip_layer(test::gzip_of(test::some_stream(bytes)), 400'000, 60'000);
     }},
    {"zstd", [](std::uint64_t bytes) { return test::make_zstd_layer(test::some_stream(bytes), 50'000); }},
    {"zstd_single", [](std::uint64_t bytes) { return test::make_zstd_single_layer(test::some_stream(bytes), 50'000); }},
};

class LayerFormatTest : public LayerStreamTestBase, public ::testing::WithParamInterface<Format> {};
INSTANTIATE_TEST_SUITE_P(Formats, LayerFormatTest, ::testing::ValuesIn(kFormats),
                         [](const auto& info) { return info.param.name; });

TEST_P(LayerFormatTest, ReadsAnywhereWhatTheLayerHolds) {
  const auto layer = GetParam().make(3'000'123);
  auto stream = serve(layer);
  EXPECT_EQ(read(*stream, 2'000'000, 100'000), part(layer, 2'000'000, 100'000));
  EXPECT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
  auto padded = part(layer, 3'000'000, 123);
  padded.resize(512);
  EXPECT_EQ(read(*stream, 3'000'000, 512), padded);
  EXPECT_TRUE(stream->complete());
  EXPECT_EQ(stream->stats().present_bytes, layer.stream.size());
  EXPECT_EQ(stream->stats().errors, 0u);
  EXPECT_TRUE(stream->verify().bad.empty());
  auto content = read_file(stream->store_file());
  EXPECT_EQ(content.size() % 4096, 0u);
  content.resize(layer.stream.size());
  EXPECT_EQ(content, layer.stream);
}

TEST_P(LayerFormatTest, RandomReadsOfManyThreadsAreRightWhileSpansArrive) {
  const auto layer = GetParam().make(6'000'000);
  options_.read_ahead_bytes = 8 * 50'000;
  options_.read_next_when_idle = true;
  options_.max_in_flight_bytes = 200'000;
  options_.connections = 4;
  auto stream = serve(layer);
  std::vector<std::jthread> readers;
  for (unsigned reader = 0; reader < 8; ++reader)
    readers.emplace_back([&, reader] {
      std::minstd_rand random(reader + 1);
      for (int i = 0; i < 60; ++i) {
        const auto offset = random() % layer.stream.size();
        const auto length = std::min<std::uint64_t>(random() % 130'000 + 1, layer.stream.size() - offset);
        ASSERT_EQ(try_read(*stream, offset, length), part(layer, offset, length)) << offset << "+" << length;
      }
    });
  readers.clear();
  while (stream->stats().fetching > 0) std::this_thread::yield();
  EXPECT_EQ(stream->stats().errors, 0u);
  EXPECT_EQ(stream->stats().decoded_bytes, stream->stats().present_bytes);  // nothing was decoded twice
}

TEST_P(LayerFormatTest, ARestartServesWithoutTheSource) {
  const auto layer = GetParam().make(1'000'000);
  EXPECT_EQ(read(*serve(layer), 0, layer.stream.size()), layer.stream);
  open();
  const auto requests = repository_->reads().size();
  repository_->remove(layer.map->layer_digest);
  auto stream = streams_->stream(layer.map, layer.blob_descriptor, nullptr, layer.index_blobs, nullptr);
  EXPECT_TRUE(stream->complete());
  EXPECT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
  EXPECT_EQ(repository_->reads().size(), requests);
  EXPECT_EQ(stream->stats().fetched_bytes, 0u);
  EXPECT_THAT(streams_->stored_layers(),
              ElementsAre(StoredLayer{layer.map->layer_digest, layer.index_blobs.map.digest}));
  EXPECT_GT(streams_->store_bytes(), layer.stream.size());
}

// Of a layer whose spans follow each other: where one begins that follows none, behind the first such.
std::size_t second_head(const index::LayerMap& map) {
  std::size_t span = 1;
  while (map.spans[span].follows) ++span;
  return span;
}

TEST_F(LayerStreamTest, OfSpansThatFollowEachOtherThoseInFrontAreFetchedAndNoMore) {
  const auto layer = test::make_followed_gzip_layer(test::gzip_of(test::some_stream(3'000'000)), 400'000, 60'000);
  const auto& spans = layer.map->spans;
  const auto head = second_head(*layer.map);
  ASSERT_TRUE(spans[head + 1].follows && spans[head + 2].follows && spans[head + 3].follows);
  auto stream = serve(layer);
  const auto& asked = spans[head + 2].stream_range;
  EXPECT_EQ(read(*stream, asked.offset + 10, 100), part(layer, asked.offset + 10, 100));
  for (auto span = head; span <= head + 2; ++span) EXPECT_TRUE(stream->is_readable(spans[span].stream_range)) << span;
  EXPECT_FALSE(stream->is_readable(spans[head + 3].stream_range));
  EXPECT_FALSE(stream->is_readable(spans[head - 1].stream_range));
  EXPECT_EQ(repository_->reads_of(layer.map->layer_digest), 1u) << "in one request";
  // What is here is not fetched again.
  const auto fetched = stream->stats().fetched_bytes;
  const auto& next = spans[head + 3];
  EXPECT_EQ(read(*stream, next.stream_range.offset, 100), part(layer, next.stream_range.offset, 100));
  EXPECT_EQ(stream->stats().fetched_bytes, fetched + next.compressed_range.length);
  EXPECT_EQ(stream->stats().decoded_bytes, stream->stats().present_bytes);
}

TEST_F(LayerStreamTest, WhoWantsOnlyTheBeginDoesNotWaitForWhatFollows) {
  const auto layer = test::make_followed_gzip_layer(test::gzip_of(test::some_stream(3'000'000)), 400'000, 60'000);
  auto stream = serve(layer);
  const auto head = second_head(*layer.map);
  read(*stream, layer.map->spans[head].stream_range.offset, 1);
  EXPECT_FALSE(stream->is_readable(layer.map->spans[head + 1].stream_range));
}

TEST_F(LayerStreamTest, WhatFollowsAMissComesWithTheSameRequest) {
  options_.read_ahead_bytes = 8 * 50'000;
  const auto layer = test::make_followed_gzip_layer(test::gzip_of(test::some_stream(3'000'000)), 400'000, 60'000);
  const auto& spans = layer.map->spans;
  auto stream = serve(layer);
  const auto head = second_head(*layer.map);
  ASSERT_TRUE(spans[head + 1].follows && spans[head + 2].follows);
  read(*stream, spans[head].stream_range.offset, 1);
  auto span = head;
  do EXPECT_TRUE(stream->is_readable(spans[span].stream_range)) << span;
  while (spans[++span].follows);
  EXPECT_FALSE(stream->is_readable(spans[span].stream_range));
  EXPECT_EQ(repository_->reads_of(layer.map->layer_digest), 1u);
}

// What one image's index says of a layer is nothing that another image reads by.
TEST_F(LayerStreamTest, OneLayerByTwoMapsIsTwoStreamsWithSourcesOfTheirOwn) {
  const auto layer = test::make_tar_layer(test::some_stream(200'000), kSpan);
  auto other = layer;
  other.index_blobs.map.digest = digest_of("another map");
  auto first = serve(layer);
  const auto elsewhere = std::make_shared<test::ScriptedRepository>();
  other.serve_from(*elsewhere);
  auto second = streams_->stream(other.map, other.blob_descriptor, elsewhere, other.index_blobs, elsewhere);
  EXPECT_NE(first, second);
  EXPECT_EQ(read(*first, 0, 1'000), part(layer, 0, 1'000));
  EXPECT_EQ(second->stats().present_bytes, 0u);
  EXPECT_TRUE(elsewhere->reads().empty());
  const auto before = repository_->reads().size();
  EXPECT_EQ(read(*second, 0, layer.stream.size()), layer.stream);
  EXPECT_EQ(repository_->reads().size(), before);
  EXPECT_EQ(streams_->stored_layers().size(), 2u);
  EXPECT_EQ(streams_->stream(layer.map, layer.blob_descriptor, repository_, layer.index_blobs, repository_), first);
}

TEST_F(LayerStreamTest, LayersThatAreOpenCountAsStoredBeforeTheyHaveAFolder) {
  std::vector<test::MadeLayer> layers;
  std::vector<std::shared_ptr<LayerStream>> streams;
  std::vector<StoredLayer> names;
  for (std::uint64_t bytes : {200'000, 300'000, 400'000, 500'000}) {
    layers.push_back(test::make_tar_layer(test::some_stream(bytes), kSpan));
    streams.push_back(serve(layers.back()));
    names.push_back({layers.back().map->layer_digest, layers.back().index_blobs.map.digest});
    EXPECT_FALSE(std::filesystem::exists(data_file(layers.back())));
  }
  read(*streams[2], 0, 10);
  EXPECT_TRUE(std::filesystem::exists(data_file(layers[2])));
  std::ranges::sort(names);
  EXPECT_EQ(streams_->stored_layers(), names);
}

TEST_F(LayerStreamTest, WhatIsThereUnderAnotherNameIsNotFetchedAnew) {
  const auto layer = test::make_tar_layer(test::some_stream(200'000), kSpan);
  EXPECT_EQ(read(*serve(layer), 0, layer.stream.size()), layer.stream);
  const auto folder = data_file(layer).parent_path();
  stream_.reset();
  streams_.reset();
  std::filesystem::rename(folder,
                          folder.parent_path() / layer.map->layer_digest.hex());  // as versions before 0.3 named it
  open();
  EXPECT_THAT(streams_->stored_layers(), ElementsAre(StoredLayer{layer.map->layer_digest, std::nullopt}));
  auto indexed_again = layer;
  for (const auto* map : {"a map", "the next one"}) {
    indexed_again.index_blobs.map.digest = digest_of(map);
    EXPECT_TRUE(
        streams_->stream(layer.map, layer.blob_descriptor, nullptr, indexed_again.index_blobs, nullptr)->complete())
        << map;
    EXPECT_THAT(streams_->stored_layers(), ElementsAre(StoredLayer{layer.map->layer_digest, digest_of(map)}));
  }
}

TEST_P(LayerFormatTest, ALayerOfNoBytesIsComplete) {
  const auto layer = GetParam().make(0);
  auto stream = serve(layer);
  EXPECT_TRUE(stream->complete());
  EXPECT_EQ(read(*stream, 0, 100), Bytes(100));
  Outcome outcome;
  stream->ensure({.offset = 0, .length = 1 << 20}, Priority::kReader, outcome.done());
  EXPECT_EQ(outcome.wait(), "");
}

TEST_F(LayerStreamTest, SixtyFourReadersOfOneColdSpanShareOneDownload) {
  const auto layer = test::make_gzip_layer(test::gzip_of(test::some_stream(1'000'000)), kSpan);
  auto stream = serve(layer);
  repository_->close_gate();
  const auto span = layer.map->spans[5];
  ASSERT_GT(span.window.length, 0u);
  std::vector<std::jthread> readers;
  std::atomic<int> right = 0;
  for (std::size_t reader = 0; reader < 64; ++reader)
    readers.emplace_back([&, reader] {
      const auto offset = span.stream_range.offset + reader * 100;
      right += try_read(*stream, offset, 5'000) == part(layer, offset, 5'000);
    });
  repository_->wait_until_gated(2);  // the span and its window
  repository_->open_gate();
  readers.clear();
  while (stream->stats().fetching > 0) std::this_thread::yield();  // it is stored after they are answered
  EXPECT_EQ(right, 64);
  EXPECT_EQ(repository_->reads_of(layer.map->layer_digest), 1u);
  EXPECT_EQ(repository_->reads_of(layer.map->windows_digest), 1u);
  EXPECT_EQ(stream->stats().requests, 2u);
  EXPECT_EQ(stream->stats().fetched_bytes, span.compressed_range.length + layer.windows.size());
  EXPECT_EQ(stream->stats().decoded_bytes, span.stream_range.length);
  EXPECT_EQ(stream->stats().fetching, 0u);
}

TEST_F(LayerStreamTest, NeighbouringSpansAreOneRequest) {
  const auto layer = test::make_tar_layer(test::some_stream(2'000'000), kSpan);
  auto stream = serve(layer);
  Outcome outcome;
  stream->ensure({.offset = 0, .length = 2'000'000}, Priority::kReader, outcome.done());
  EXPECT_EQ(outcome.wait(), "");
  EXPECT_EQ(stream->stats().requests, 1u);
  EXPECT_EQ(stream->stats().fetched_bytes, 2'000'000u);
}

TEST_F(LayerStreamTest, WindowsOfALargeBlobAreFetchedByRange) {
  // Windows are small, so many spans are needed before their blob is more than is fetched whole.
  const auto layer = test::make_gzip_layer(test::gzip_of(test::some_stream(9'000'000)), 20'000, true);
  ASSERT_GT(layer.windows.size(), 1u << 20);
  auto stream = serve(layer);
  EXPECT_EQ(read(*stream, 3'000'000, 10), part(layer, 3'000'000, 10));
  for (const auto& request : repository_->reads()) {
    if (request.digest != layer.map->windows_digest) continue;
    EXPECT_LE(request.range.length, 128u * 1024);
  }
  EXPECT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
  // Opened again, the windows are there as well.
  std::filesystem::remove(data_file(layer));
  stream.reset();
  open();
  const auto requests = repository_->reads_of(layer.map->windows_digest);
  stream = serve(layer);
  EXPECT_FALSE(stream->complete());
  EXPECT_EQ(read(*stream, 3'000'000, 10), part(layer, 3'000'000, 10));
  EXPECT_EQ(repository_->reads_of(layer.map->windows_digest), requests);
}

TEST_F(LayerStreamTest, ReadAheadMakesASequentialReaderWaitLess) {
  const auto layer = test::make_tar_layer(test::some_stream(4'000'000), kSpan);
  options_.read_ahead_bytes = 8 * 50'000;
  auto stream = serve(layer);
  std::size_t waits = 0;
  Outcome last;
  for (std::uint64_t at = 0; at < layer.stream.size(); at += 25'000) {
    // What was asked for ahead has time to come before the reader needs it.
    while (stream->stats().fetching > 0) std::this_thread::yield();
    waits += stream->is_readable({.offset = at, .length = 25'000}) ? 0 : 1;
    ASSERT_EQ(read(*stream, at, 25'000), part(layer, at, 25'000));
  }
  EXPECT_LE(waits, 14u);  // those before it counts as a sequence: 512 KiB of spans of 50 kB
  EXPECT_EQ(stream->stats().fetched_bytes, layer.stream.size());
}

TEST_F(LayerStreamTest, ALoneMissBringsItsNeighbourOnAnIdleLinkOnlyIfWanted) {
  const auto layer = test::make_tar_layer(test::some_stream(1'000'000), kSpan);
  options_.read_ahead_bytes = 8 * 50'000;
  auto stream = serve(layer);
  read(*stream, 500'000, 100);
  EXPECT_EQ(stream->stats().present_bytes, kSpan);
  options_.read_next_when_idle = true;
  stream.reset();
  open();
  stream = serve(layer);
  read(*stream, 700'000, 100);
  while (stream->stats().fetching > 0) std::this_thread::yield();
  EXPECT_TRUE(stream->is_readable({.offset = 700'000, .length = 2 * kSpan}));
  EXPECT_EQ(stream->stats().present_bytes, 3 * kSpan);
}

TEST_F(LayerStreamTest, TheSameLayerIsTheSameStreamAndUnusedOnesAreClosed) {
  const auto layer = test::make_tar_layer(test::some_stream(200'000), kSpan);
  const auto other = test::make_tar_layer(test::some_stream(200'000, 2), kSpan);
  auto first = serve(layer);
  auto second = serve(layer);
  EXPECT_EQ(first, second);
  const std::weak_ptr<LayerStream> watch = first;
  read(*first, 0, 10);
  first.reset();
  second.reset();
  serve(other);
  // Its last task may hold it for a moment.
  while (!watch.expired()) serve(other);
  EXPECT_TRUE(serve(layer)->is_readable({.offset = 0, .length = 10}));  // opened again from disk
}

TEST_F(LayerStreamTest, ALayerIsRemovedWhenNobodyHasItOpen) {
  const auto layer = test::make_tar_layer(test::some_stream(200'000), kSpan);
  const auto digest = layer.map->layer_digest;
  auto stream = serve(layer);
  read(*stream, 0, 10);
  EXPECT_FALSE(streams_->remove(digest));
  EXPECT_TRUE(stream->is_readable({.offset = 0, .length = 10}));
  stream.reset();
  stream_.reset();
  std::optional<std::uint64_t> freed;
  // Its last task, or the one who brings it to disk, may hold it for a moment.
  while (!(freed = streams_->remove(digest))) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GT(*freed, 0u);
  EXPECT_TRUE(streams_->stored_layers().empty());
  EXPECT_EQ(streams_->remove(digest), 0u) << "what is not there is nobody's";
  EXPECT_FALSE(serve(layer)->is_readable({.offset = 0, .length = 10}));
}

TEST_F(LayerStreamTest, AStoreIsUsedByOneOnly) {
  open();
  EXPECT_THROW(LayerStreams::open(dir_ / "store", options_), TemporaryError);
  streams_.reset();
  EXPECT_NO_THROW(LayerStreams::open(dir_ / "store", options_));
}

TEST_F(LayerStreamTest, AStoreThatWasOpenToOthersIsClosed) {
  std::filesystem::create_directories(dir_ / "store");
  std::filesystem::permissions(dir_ / "store", std::filesystem::perms(0755));
  open();
  EXPECT_EQ(std::filesystem::status(dir_ / "store").permissions(), std::filesystem::perms::owner_all);
}

TEST_F(LayerStreamTest, RefusesBlobsThatAreNotThoseOfTheMap) {
  const auto layer = test::make_gzip_layer(test::gzip_of(test::some_stream(200'000)), 20'000);
  open();
  auto blob = layer.blob_descriptor;
  blob.size += 1;
  EXPECT_THROW(streams_->stream(layer.map, blob, repository_, layer.index_blobs, repository_), CorruptData);
  blob = layer.blob_descriptor;
  blob.digest = digest_of("other");
  EXPECT_THROW(streams_->stream(layer.map, blob, repository_, layer.index_blobs, repository_), CorruptData);
  auto blobs = layer.index_blobs;
  blobs.windows->digest = digest_of("other");
  EXPECT_THROW(streams_->stream(layer.map, layer.blob_descriptor, repository_, blobs, repository_), CorruptData);
  auto map = std::make_shared<index::LayerMap>(*layer.map);
  map->spans[1].stream_range.offset += 1;
  EXPECT_THROW(streams_->stream(map, layer.blob_descriptor, repository_, layer.index_blobs, repository_), CorruptData);
}

TEST_F(LayerStreamTest, AReadInsideDoneGoesOn) {
  const auto layer = test::make_tar_layer(test::some_stream(500'000), kSpan);
  auto stream = serve(layer);
  Outcome ensured, outcome;
  Bytes bytes(10), later(10);
  stream->read(0, bytes, [&](std::exception_ptr) {
    EXPECT_EQ(bytes, part(layer, 0, 10));
    stream->ensure({.offset = 300'000, .length = 10}, Priority::kReader, ensured.done());
    stream->read(400'000, later, outcome.done());
  });
  EXPECT_EQ(outcome.wait(), "");
  EXPECT_EQ(later, part(layer, 400'000, 10));
  EXPECT_EQ(ensured.wait(), "");
}

TEST_F(LayerStreamTest, RefinedSpansReuseWhatTheStoreHolds) {
  const auto stream_bytes = test::some_stream(1'000'000);
  const auto coarse = test::make_tar_layer(stream_bytes, kSpan);
  const auto fine = test::make_tar_layer(stream_bytes, 20'000);
  read(*serve(coarse), 200'000, 200'000);
  open();
  auto stream = serve(fine);
  const auto requests = repository_->reads().size();
  EXPECT_EQ(read(*stream, 200'000, 200'000), part(fine, 200'000, 200'000));
  EXPECT_EQ(repository_->reads().size(), requests);
  EXPECT_EQ(read(*stream, 0, 1'000'000), stream_bytes);
}

TEST_F(LayerStreamTest, AWholeLayerIsFilledInTheBackground) {
  const auto layer = test::make_gzip_layer(test::gzip_of(test::some_stream(3'000'000)), kSpan);
  auto stream = serve(layer);
  Outcome outcome;
  repository_->close_gate();
  EXPECT_FALSE(streams_->busy());
  stream->ensure({.offset = 0, .length = layer.stream.size()}, Priority::kBackground, outcome.done());
  EXPECT_TRUE(streams_->busy());
  EXPECT_FALSE(streams_->somebody_waits());
  repository_->open_gate();
  EXPECT_EQ(outcome.wait(), "");
  EXPECT_TRUE(stream->complete());
  EXPECT_EQ(outcome.calls(), 1);
  while (stream->stats().fetching > 0) std::this_thread::yield();
  EXPECT_FALSE(streams_->busy());
}

}  // namespace
}  // namespace varve::fuse
