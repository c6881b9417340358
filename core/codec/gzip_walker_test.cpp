#include "core/codec/gzip_walker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <random>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/codec/span_decoder.h"
#include "testing/codec_support.h"
#include "testing/refusal.h"
#include "testing/temp_dir.h"

namespace varve::codec {
namespace {

using namespace test;

Bytes walk(ByteView compressed, std::size_t step = 100'000) {
  KeepingGzipListener kept;
  GzipWalker walker("blob", kept);
  feed_in_steps(walker, compressed, step);
  return std::move(kept.stream);
}

// Enters at every boundary with the given window and compares a good part of what follows, or all of it if that is
// short.
void expect_resumes(ByteView compressed, ByteView stream, const GzipBoundary& at, ByteView window,
                    SpanDecoder& decoder) {
  const auto from = at.compressed_offset - (at.bits != 0 ? 1 : 0);
  Bytes decoded(std::min<std::size_t>(stream.size() - at.stream_offset, 150'000));
  decoder.decode_gzip(
      {.compressed = compressed.subspan(from), .bits = at.bits, .window = window, .member_header = at.member_start},
      decoded, "span");
  ASSERT_TRUE(std::equal(decoded.begin(), decoded.end(), stream.begin() + std::ptrdiff_t(at.stream_offset)))
      << "at " << at.stream_offset;
}

void expect_every_boundary_resumes(ByteView compressed, ByteView content) {
  KeepingGzipListener kept;
  GzipWalker walker("blob", kept);
  feed_in_steps(walker, compressed, 70'001);
  ASSERT_TRUE(std::ranges::equal(kept.stream, content));
  ASSERT_FALSE(kept.boundaries.empty());
  EXPECT_TRUE(kept.boundaries.front().boundary.member_start);
  SpanDecoder decoder;
  const std::size_t stride = kept.boundaries.size() / 300 + 1;  // enough of them
  for (std::size_t i = 0; i < kept.boundaries.size(); i += stride) {
    const auto& [at, window] = kept.boundaries[i];
    ASSERT_EQ(kept.delivered_before[i], at.stream_offset);
    expect_resumes(compressed, content, at, window, decoder);
    if (at.member_start) continue;
    const auto from = at.compressed_offset - (at.bits != 0 ? 1 : 0);
    const auto sparse = make_window_sparse(compressed.subspan(from), at.bits, window);
    ASSERT_EQ(sparse.size(), window.size());
    expect_resumes(compressed, content, at, sparse, decoder);
  }
}

TEST(GzipWalkerTest, EveryBoundaryOfZlibsLevelsAndStrategiesCanBeEntered) {
  for (const auto& [name, content] : sample_contents()) {
    SCOPED_TRACE(name);
    for (int level = 0; level <= 9; ++level) expect_every_boundary_resumes(gzip(content, level), content);
    for (const int strategy : {Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED})
      expect_every_boundary_resumes(gzip(content, 6, strategy), content);
    expect_every_boundary_resumes(gzip(content, 9, Z_DEFAULT_STRATEGY, 1), content);  // small blocks
  }
}

TEST(GzipWalkerTest, EveryBoundaryOfFlushedStreamsCanBeEntered) {
  const auto content = text_like_bytes(1'000'000);
  expect_every_boundary_resumes(gzip_with_flushes(content, 1'000), content);
  expect_every_boundary_resumes(gzip_with_flushes(content, 50'000, true), content);
}

struct Producer {
  const char* tool;
  const char* command;
};

class GzipProducerTest : public testing::TestWithParam<Producer> {};

TEST_P(GzipProducerTest, EveryBoundaryCanBeEntered) {
  if (!have_tool(GetParam().tool)) GTEST_SKIP() << GetParam().tool << " is not installed";
  for (const auto& [name, content] : sample_contents()) {
    SCOPED_TRACE(name);
    expect_every_boundary_resumes(run_tool(GetParam().command, content), content);
  }
}

INSTANTIATE_TEST_SUITE_P(Tools, GzipProducerTest,
                         testing::Values(Producer{"gzip", "gzip -1"}, Producer{"gzip", "gzip -9"},
                                         Producer{"pigz", "pigz -p 2 -b 128"}, Producer{"pigz", "pigz -i -b 128 -6"},
                                         Producer{"pigz", "pigz -0"}, Producer{"zopfli", "zopfli --i1 -c in"},
                                         Producer{"igzip", "igzip -c"}));

// Docker, BuildKit and containerd compress so.
constexpr auto kGoCompressor = R"(package main
import ("compress/gzip"; "io"; "os"; "strconv")
func main() {
	level, _ := strconv.Atoi(os.Args[1])
	w, _ := gzip.NewWriterLevel(os.Stdout, level)
	io.Copy(w, os.Stdin)
	w.Close()
}
)";

TEST(GzipWalkerTest, EveryBoundaryOfGosCompressorCanBeEntered) {
  if (!have_tool("go")) GTEST_SKIP() << "go is not installed";
  const varve::test::TempDir folder;
  write_file_atomically(folder / "main.go", as_bytes(kGoCompressor));
  const auto program = (folder / "compress").string();
  const auto build = "cd '" + folder.path().string() +
                     "' && GO111MODULE=off GOFLAGS= GOCACHE=" + (folder / "cache").string() +
                     " go build -o compress main.go";
  ASSERT_EQ(std::system(build.c_str()), 0);
  for (const auto& [name, content] : sample_contents()) {
    SCOPED_TRACE(name);
    for (const auto* level : {" -2", " -1", " 0", " 1", " 9"})
      expect_every_boundary_resumes(run_tool(program + level, content), content);
  }
}

TEST(GzipWalkerTest, PiecesOfAnySizeGiveTheSame) {
  const auto content = program_like_bytes(300'000);
  const auto compressed = concat({gzip(content), gzip({}), gzip(content, 1)});
  const auto whole = concat({content, content});
  for (const std::size_t step : {1, 7, 299, 4096, 131'072, 1'000'000}) EXPECT_EQ(walk(compressed, step), whole) << step;
}

TEST(GzipWalkerTest, MembersFollowEachOther) {
  const auto a = text_like_bytes(100'000, 1), b = random_bytes(70'000), c = text_like_bytes(50, 3);
  const auto compressed = concat({gzip(a), gzip(b, 0), gzip({}), gzip(c)});
  expect_every_boundary_resumes(compressed, concat({a, b, c}));
  KeepingGzipListener kept;
  GzipWalker walker("blob", kept);
  feed_in_steps(walker, compressed, 1000);
  EXPECT_EQ(walker.members(), 4u);
  std::vector<std::uint64_t> starts;
  for (const auto& [at, window] : kept.boundaries) {
    if (!at.member_start) continue;
    starts.push_back(at.compressed_offset);
    EXPECT_TRUE(window.empty());
  }
  const auto first = gzip(a).size(), second = gzip(b, 0).size(), third = gzip({}).size();
  EXPECT_EQ(starts, (std::vector<std::uint64_t>{0, first, first + second, first + second + third}));
}

// Why the walker refuses it; empty if it does not.
std::string gzip_refusal(ByteView compressed) {
  return varve::test::refusal_of<CorruptData>([&] { walk(compressed); });
}

TEST(GzipWalkerTest, NothingIsReferredToAcrossMembers) {
  const auto member = gzip(text_like_bytes(10'000));
  // One block of fixed codes, first bit lowest: 1 (last), 10 (fixed), 0000001 (length 3), 00000 (distance 1), 0000000
  // (end).
  const Bytes block = {std::byte(0x03), std::byte(0x02), std::byte(0x00)};
  EXPECT_THAT(gzip_refusal(concat({member, ByteView(member).first(10), block, Bytes(8)})),
              testing::HasSubstr("reaches before the data"));
}

struct DecliningListener final : GzipListener {
  void on_stream_bytes(ByteView bytes) override {
    stream_bytes += bytes.size();
    ++pieces;
  }
  void on_boundary(const GzipBoundary& at, ByteView) override { boundaries.push_back(at.stream_offset); }
  bool wants_boundary(std::uint64_t stream_offset) override { return stream_offset >= next; }
  std::uint64_t next = UINT64_MAX, stream_bytes = 0;
  int pieces = 0;
  std::vector<std::uint64_t> boundaries;
};

TEST(GzipWalkerTest, WhoDeclinesBoundariesGetsLargePieces) {
  const auto compressed = gzip_with_flushes(text_like_bytes(2'000'000), 100);
  DecliningListener listener;
  GzipWalker walker("blob", listener);
  feed_in_steps(walker, compressed, 5000);
  EXPECT_EQ(listener.stream_bytes, 2'000'000u);
  EXPECT_TRUE(listener.boundaries.empty());
  EXPECT_LE(listener.pieces, 10);

  DecliningListener once;
  once.next = 1'000'000;
  GzipWalker second("blob", once);
  feed_in_steps(second, compressed, 5000);
  ASSERT_FALSE(once.boundaries.empty());
  EXPECT_EQ(once.boundaries.front(), 1'000'000u);
}

// RFC 1952 section 2.3; the CRC16 is that of the bytes before it.
Bytes member_with_all_fields(ByteView content) {
  const auto plain = gzip(content);
  Bytes header;
  for (const int byte : {0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 1, 2, 3, 4, 0, 255}) header.push_back(std::byte(byte));
  append_le(header, std::uint16_t(70));
  header.resize(header.size() + 70, std::byte('e'));
  append(header, as_bytes(std::string_view("name\0comment\0", 13)));
  append_le(header, std::uint16_t(crc32(0, reinterpret_cast<const Bytef*>(header.data()), uInt(header.size()))));
  append(header, ByteView(plain).subspan(10));
  return header;
}

TEST(GzipWalkerTest, ReadsAllHeaderFieldsAndChecksTheirChecksum) {
  const auto content = text_like_bytes(30'000);
  auto member = member_with_all_fields(content);
  ASSERT_EQ(gunzip(member), content);
  EXPECT_EQ(walk(concat({member, member}), 3), concat({content, content}));
  expect_every_boundary_resumes(concat({member, member}), concat({content, content}));
  member[20] = std::byte('E');
  EXPECT_THROW(walk(member), CorruptData);
}

TEST(GzipWalkerTest, TreatsWhatFollowsTheLastMemberAsGzipDoes) {
  const auto content = text_like_bytes(5'000);
  const auto member = gzip(content);
  for (const auto& tail : {Bytes(1), Bytes(100'000), to_bytes(as_bytes("garbage")), Bytes(1, std::byte(0x1f)),
                           concat({Bytes(512), member})}) {
    const auto blob = concat({member, tail});
    EXPECT_EQ(walk(blob), content) << tail.size();
    EXPECT_EQ(walk(blob, 1), content) << tail.size();
    // It warns with status 2.
    EXPECT_EQ(run_tool("gzip -dc 2>/dev/null; test $? -le 2", blob), content) << tail.size();
  }
  // What begins like a member must be one.
  EXPECT_THROW(walk(concat({member, ByteView(member).first(5)})), CorruptData);
  EXPECT_THROW(walk(concat({member, as_bytes("\x1f\x8b\x01 something else")})), CorruptData);
}

TEST(GzipWalkerTest, RefusesWhatIsNoGzip) {
  EXPECT_THROW(walk({}), CorruptData);
  EXPECT_THROW(walk(as_bytes("\x1f")), CorruptData);
  EXPECT_THROW(walk(as_bytes("plain text, long enough to look at")), CorruptData);
}

TEST(GzipWalkerTest, NamesTheBlobThePlaceAndTheReason) {
  auto compressed = gzip(text_like_bytes(200'000));
  compressed[compressed.size() - 8] ^= std::byte(1);
  try {
    walk(compressed);
    FAIL() << "the CRC is wrong";
  } catch (const CorruptData& error) {
    EXPECT_EQ(std::string(error.what()), "blob: gzip data at " + std::to_string(compressed.size() - 8) +
                                             ": the CRC32 of the member does not match its data");
  }
}

TEST(GzipWalkerTest, ChecksCrcAndLengthOfEveryMember) {
  const auto member = gzip(text_like_bytes(10'000));
  for (std::size_t back = 1; back <= 8; ++back) {
    auto blob = concat({member, member});
    blob[member.size() - back] ^= std::byte(0x10);
    EXPECT_THROW(walk(blob), CorruptData) << back;
  }
}

TEST(GzipWalkerTest, RefusesEveryTruncation) {
  const auto compressed = gzip(program_like_bytes(20'000), 6);
  for (std::size_t size = 0; size < compressed.size(); ++size) {
    EXPECT_THROW(walk(ByteView(compressed).first(size)), CorruptData) << size;
  }
}

TEST(GzipWalkerTest, AgreesWithZlibOnBrokenData) {
  std::mt19937 random(7);
  int accepted = 0;
  for (const auto& content : {text_like_bytes(3'000), program_like_bytes(6'000), Bytes(5'000), random_bytes(200)}) {
    for (const int level : {0, 1, 6}) {
      const auto good = gzip(content, level, level == 1 ? Z_FIXED : Z_DEFAULT_STRATEGY);
      for (int i = 0; i < 1'500; ++i) {
        auto bad = good;
        // The MTIME, XFL and OS fields may hold anything, so some changes are fine.
        for (auto flips = 1 + random() % 3; flips > 0; --flips)
          bad[random() % bad.size()] ^= std::byte(1u << random() % 8);
        const auto expected = gunzip(bad);
        std::optional<Bytes> ours;
        try {
          ours = walk(bad);
        } catch (const CorruptData&) {
        }
        ASSERT_EQ(ours, expected);
        accepted += expected ? 1 : 0;
      }
    }
  }
  EXPECT_GT(accepted, 10);
}

TEST(GzipWalkerTest, AgreesWithZlibOnBrokenBlockHeaders) {
  // Blocks of random codes: hardly any is valid, and each for a reason of its own. No CRC matches, so what is compared
  // is whether both find the data bad, or both come to its end first. Only a bad code that straddles the end may be
  // told apart differently.
  std::mt19937 random(11);
  int differ = 0, ends = 0;
  constexpr int kRuns = 30'000;
  for (int i = 0; i < kRuns; ++i) {
    Bytes blob = to_bytes(as_bytes(std::string_view("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10)));
    auto block = random_bytes(20 + random() % 300, std::uint32_t(random()));
    block[0] = (block[0] & std::byte(0xf8)) | std::byte(random() % 2 == 0 ? 5 : 4);
    append(blob, block);
    bool zlib_came_to_end = false;
    ASSERT_EQ(gunzip(blob, &zlib_came_to_end), std::nullopt);
    const auto reason = gzip_refusal(blob);
    ASSERT_FALSE(reason.empty());
    const bool came_to_end = reason.find("ends in the middle") != reason.npos;
    differ += came_to_end != zlib_came_to_end ? 1 : 0;
    ends += came_to_end ? 1 : 0;
  }
  EXPECT_LT(differ, kRuns / 500);
  EXPECT_GT(ends, 0);
}

TEST(GzipWalkerTest, AListenersExceptionPasses) {
  struct Throwing final : GzipListener {
    void on_stream_bytes(ByteView) override { throw Cancelled("enough"); }
    void on_boundary(const GzipBoundary&, ByteView) override {}
  } listener;
  GzipWalker walker("blob", listener);
  const auto compressed = gzip(text_like_bytes(100'000));
  EXPECT_THROW(feed_in_steps(walker, compressed, compressed.size()), Cancelled);
}

TEST(SparseWindowTest, KeepsOnlyWhatIsReferredTo) {
  const auto content = text_like_bytes(4'000'000);
  const auto compressed = gzip(content);
  KeepingGzipListener kept;
  GzipWalker walker("blob", kept);
  feed_in_steps(walker, compressed, 100'000);
  std::size_t used = 0, all = 0;
  for (const auto& [at, window] : kept.boundaries) {
    if (window.size() < kDeflateWindowBytes) continue;
    const auto sparse = make_window_sparse(ByteView(compressed).subspan(at.compressed_offset - (at.bits != 0 ? 1 : 0)),
                                           at.bits, window);
    for (std::size_t i = 0; i < sparse.size(); ++i) ASSERT_TRUE(sparse[i] == window[i] || sparse[i] == std::byte(0));
    used += std::size_t(std::count_if(sparse.begin(), sparse.end(), [](std::byte b) { return b != std::byte(0); }));
    all += sparse.size();
  }
  ASSERT_GT(all, 0u);
  EXPECT_LT(used, all * 3 / 4);
}

TEST(SparseWindowTest, RefusesTooLittleInput) {
  const auto content = text_like_bytes(300'000);
  const auto compressed = gzip(content);
  KeepingGzipListener kept;
  GzipWalker walker("blob", kept);
  feed_in_steps(walker, compressed, 100'000);
  ASSERT_GT(kept.boundaries.size(), 1u);
  const auto& [at, window] = kept.boundaries[1];
  const auto from = ByteView(compressed).subspan(at.compressed_offset - (at.bits != 0 ? 1 : 0));
  EXPECT_THROW(make_window_sparse(from.first(1000), at.bits, window), CorruptData);
  EXPECT_THROW(make_window_sparse({}, at.bits, window), CorruptData);
  EXPECT_TRUE(make_window_sparse(from, at.bits, {}).empty());
}

}  // namespace
}  // namespace varve::codec
