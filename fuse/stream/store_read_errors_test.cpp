// A disk that does not give back what it took: each read of the store fails once, for good, or in part. No reader gets
// a wrong byte, or an error while the layer's source has what is lost; the log names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/base/files/file.h"
#include "core/base/log.h"
#include "fuse/stream/span_store.h"
#include "testing/disk_recorder.h"
#include "testing/layer_stream_fixture.h"

namespace varve::fuse {
namespace {

using test::DiskFault;
using test::DiskWatch;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr DiskFault kFaults[] = {
    {.error = EIO, .of_reads = true}, {.error = EIO, .sticky = true, .of_reads = true}, {.error = 0, .of_reads = true}};

std::string story_of(const DiskFault& fault) {
  return fmt::format("read {}: {}", fault.call,
                     fault.error == 0 ? "a part only"
                     : fault.sticky   ? "a bad place"
                                      : "fails once");
}

std::string log_in(const std::filesystem::path& file) {
  const auto bytes = read_file_if_there(file);
  return bytes ? std::string(as_text(*bytes)) : "";
}

// Opens a store that is full, reads all of it, puts what is missing, and reads again until nothing is.
void read_and_mend(const std::filesystem::path& dir, const test::MadeLayer& layer) {
  const auto part = [&](std::size_t span) {
    const auto range = layer.map->spans[span].stream_range;
    return ByteView(layer.stream).subspan(range.offset, range.length);
  };
  SpanStore store(dir, layer.map);
  for (std::size_t span = 0; span < layer.map->spans.size(); ++span) {
    Bytes bytes(part(span).size());
    if (store.state(span) == SpanStore::State::kUnchecked) store.check(span, layer.map->digests[span].stream, bytes);
  }
  for (std::vector<std::uint32_t> missing{0}; !missing.empty();) {
    auto expected = layer.stream;
    Bytes bytes(layer.stream.size());
    missing = store.read(0, bytes);
    for (const auto span : missing) {
      const auto range = layer.map->spans[span].stream_range;
      EXPECT_FALSE(store.is_readable(span));
      std::ranges::copy(ByteView(bytes).subspan(range.offset, range.length),
                        expected.begin() + std::ptrdiff_t(range.offset));
      EXPECT_TRUE(store.put(span, part(span)));
    }
    ASSERT_EQ(bytes, expected) << "a byte that is not said to be missing is wrong";
  }
}

class ReadErrorsTest : public ::testing::Test {
 protected:
  ReadErrorsTest() { log::write_to_file(dir_ / "log"); }

  test::TempDir dir_;
  const test::NoSync no_sync_;
  const test::MadeLayer layer_ = test::make_tar_layer(test::some_stream(20 * 1'500 + 77), 1'500);
  const test::MadeLayer other_cut_ = test::make_tar_layer(test::some_stream(20 * 1'500 + 77), 4'000);
};

TEST_F(ReadErrorsTest, WhatTheStoresDiskDoesNotGiveBackIsMissingAndCanBePutAgain) {
  const auto fill = [&](const std::filesystem::path& dir) {
    SpanStore store(dir, layer_.map);
    for (std::size_t span = 0; span < layer_.map->spans.size(); ++span) {
      const auto range = layer_.map->spans[span].stream_range;
      store.put(span, ByteView(layer_.stream).subspan(range.offset, range.length));
    }
  };
  std::size_t refused = 0;
  std::size_t lost = 0;
  for (const auto* layer : {&layer_, &other_cut_}) {
    fill(dir_ / "counted");
    std::size_t reads = 0;
    {
      const DiskWatch watch(dir_ / "counted");
      read_and_mend(dir_ / "counted", *layer);
      reads = watch.reads();
    }
    std::filesystem::remove_all(dir_ / "counted");
    ASSERT_GT(reads, 2u);
    for (std::size_t read = 0; read < reads; ++read) {
      for (auto fault : kFaults) {
        fault.call = read;
        SCOPED_TRACE(story_of(fault));
        const test::TempDir fresh;
        fill(fresh.path() / "layer");
        {
          const DiskWatch watch(fresh.path(), fault);
          try {
            read_and_mend(fresh.path() / "layer", *layer);
          } catch (const std::system_error& error) {  // the record of what is there, before anything is served
            EXPECT_EQ(error.code().value(), EIO);
            EXPECT_THAT(error.what(), HasSubstr(fresh.path().string()));
            ++refused;
          }
        }
        if (log_in(dir_ / "log").find(fmt::format("read {}/layer/data at ", fresh.path().string())) !=
            std::string::npos)
          ++lost;
        read_and_mend(fresh.path() / "layer", *layer);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(refused, 1u);
  EXPECT_GT(lost, 10u);
}

class StreamReadErrorsTest : public LayerStreamTestBase {
 protected:
  StreamReadErrorsTest() { log::write_to_file(dir_ / "log"); }
  const test::NoSync no_sync_;
};

TEST_F(StreamReadErrorsTest, ReadersGetTheirBytesFromTheSourceInstead) {
  const auto layer = test::make_gzip_layer(test::gzip_of(test::some_stream(600'000)), kSpan);
  ASSERT_GT(layer.windows.size(), 0u);
  // Half of it is here, and all windows: the rest is decoded with windows from disk.
  serve(layer);
  EXPECT_EQ(read(*stream_, 0, 300'000), part(layer, 0, 300'000));
  TearDown();
  std::filesystem::copy(dir_ / "store", dir_ / "half", std::filesystem::copy_options::recursive);
  const auto read_all = [&] {
    const auto bytes = read(*serve(layer), 0, layer.stream.size());
    EXPECT_EQ(bytes, layer.stream);
    EXPECT_EQ(read(*stream_, 0, layer.stream.size()), layer.stream) << "a second time";
    TearDown();
  };
  std::size_t reads = 0;
  {
    const DiskWatch watch(dir_ / "store");
    read_all();
    reads = watch.reads();
  }
  ASSERT_GT(reads, 8u);
  std::set<std::size_t> refused;
  for (std::size_t call = 0; call < reads; ++call) {
    for (auto fault : kFaults) {
      fault.call = call;
      SCOPED_TRACE(story_of(fault));
      std::filesystem::remove_all(dir_ / "store");
      std::filesystem::copy(dir_ / "half", dir_ / "store", std::filesystem::copy_options::recursive);
      {
        const DiskWatch watch(dir_ / "store", fault);
        try {
          read_all();
        } catch (const std::system_error& error) {  // a record of what is there
          EXPECT_THAT(error.what(), HasSubstr("presence"));
          refused.insert(call);
          TearDown();
        }
      }
      read_all();
      if (HasFailure()) return;
    }
  }
  EXPECT_THAT(refused, SizeIs(4)) << "two records, each read to its end";
  EXPECT_THAT(log_in(dir_ / "log"), HasSubstr(fmt::format("read {} at ", data_file(layer).string())));
}

}  // namespace
}  // namespace varve::fuse
