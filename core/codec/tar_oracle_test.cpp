// Tars of the tools that make them in the wild, compared entry by entry with what Python's tarfile reads from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "core/base/digest.h"
#include "core/base/files/file.h"
#include "core/codec/tar_parser.h"
#include "testing/codec_support.h"
#include "testing/tar_support.h"
#include "testing/temp_dir.h"

namespace varve::codec {
namespace {

using namespace test;

constexpr std::string_view kPythonLister = R"(
import hashlib, sys, tarfile
kinds = {b'0': 'file', b'\0': 'file', b'S': 'file', b'7': 'file', b'1': 'hard', b'2': 'soft', b'3': 'char',
         b'4': 'block', b'5': 'dir', b'6': 'pipe'}
with tarfile.open('in', 'r:', encoding='utf-8', errors='surrogateescape') as tar:
    for e in tar:
        content = tar.extractfile(e).read() if e.isreg() else b''
        link = e.linkname if e.issym() or e.islnk() else ''
        line = '%s %s %o %d %d %d %d %d %s %s %s' % (
            kinds[e.type], e.name.rstrip('/'), e.mode & 0o7777, e.uid, e.gid, e.mtime // 1, len(content), e.offset,
            link, e.offset_data if content else 0, hashlib.sha256(content).hexdigest())
        sys.stdout.buffer.write(line.encode('utf-8', 'surrogateescape') + b'\n')
)";

std::string kind_of(FileType type) {
  switch (type) {
    case FileType::kRegular:
      return "file";
    case FileType::kHardLink:
      return "hard";
    case FileType::kSymlink:
      return "soft";
    case FileType::kCharDevice:
      return "char";
    case FileType::kBlockDevice:
      return "block";
    case FileType::kDirectory:
      return "dir";
    case FileType::kFifo:
      return "pipe";
  }
  return "?";
}

std::string list_as_python_does(ByteView tar) {
  std::string lines;
  for (const auto& kept : parse_tar(tar, 7'777)) {
    const auto& e = kept.entry;
    auto name = e.name;
    while (!name.empty() && name.back() == '/') name.pop_back();
    const auto content = content_by_runs(tar, e);
    EXPECT_EQ(kept.content.size(), e.data_stream_length);
    lines += fmt::format("{} {} {:o} {} {} {} {} {} {} {} {}\n", kind_of(e.type), name, e.mode, e.uid, e.gid,
                         e.mtime_seconds, e.size, e.header_stream_offset, e.link_name,
                         e.size != 0 ? e.data_stream_offset : 0, digest_of(content).hex());
  }
  return lines;
}

class TarOracleTest : public testing::TestWithParam<std::string> {
 protected:
  // A folder with what archives of that kind can hold; `make` is a shell script run inside.
  void make_tree(const std::string& make) const {
    const auto script = "cd '" + folder_.path().string() + "' && mkdir t && cd t && { " + make + "; }";
    ASSERT_EQ(std::system(("bash -ec '" + script + "'").c_str()), 0);
  }
  Bytes archive(const std::string& command) const {
    const auto line = "cd '" + folder_.path().string() + "' && " + command + " >out.tar 2>/dev/null";
    EXPECT_EQ(std::system(line.c_str()), 0) << command;
    return read_file(folder_ / "out.tar");
  }
  void expect_same_as_python(ByteView tar) const {
    const auto script = (folder_ / "list.py").string();
    write_file_atomically(script, as_bytes(kPythonLister));
    const auto expected = std::string(as_text(run_tool("python3 '" + script + "'", tar)));
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(list_as_python_does(tar), expected);
  }
  varve::test::TempDir folder_;
};

constexpr auto kPlainTree =
    "mkdir -p a/b; echo hello >a/f; head -c 100000 /dev/urandom >a/b/r; : >empty; ln a/f a/hard; ln -s ../x soft; "
    "mkfifo pipe; "
    "touch -d @1234567890 a/f; chmod 4755 empty; chmod 1777 a";
constexpr auto kRichTree =
    "mkdir -p a/b; echo hello >a/f; n=$(printf %0150d 7); mkdir -p $n/$n; echo deep >$n/$n/file; ln $n/$n/file "
    "$n/$n/link; ln -s $n/$n/$n soft; "
    "touch -d @-12345 a/f; touch -d @1700000000.123456789 a; printf x >$(printf \"a/\\\\344\\\\366\"); : >empty; "
    "mkfifo pipe";
constexpr auto kSparseTree =
    "truncate -s 3000000 hole; for i in $(seq 1 40); do printf data$i | dd of=many bs=1 seek=$((i * 70000)) "
    "conv=notrunc status=none; done; truncate -s 5000000 many; "
    "echo plain >plain";

struct PlainTree : TarOracleTest {};
TEST_P(PlainTree, IsReadAsPythonReadsIt) {
  if (!have_tool("python3") || !have_tool(GetParam().substr(0, GetParam().find(' '))))
    GTEST_SKIP() << GetParam() << ": the tool is not installed";
  make_tree(kPlainTree);
  expect_same_as_python(archive(GetParam() + " t"));
}
INSTANTIATE_TEST_SUITE_P(Tools, PlainTree,
                         testing::Values("tar --format=v7 --numeric-owner --exclude=pipe -cf -",
                                         "tar --format=oldgnu -cf -", "tar --format=gnu -cf -",
                                         "tar --format=ustar -cf -", "tar --format=pax -cf -",
                                         "tar --format=gnu --owner=big:3000000 --group=big:4000000 -cf -",
                                         "tar --format=pax --owner=big:3000000 --group=big:4000000 -cf -",
                                         "bsdtar --format=pax -cf -", "bsdtar --format=ustar -cf -",
                                         "bsdtar --format=gnutar -cf -"));

struct RichTree : TarOracleTest {};
TEST_P(RichTree, IsReadAsPythonReadsIt) {
  if (!have_tool("python3") || !have_tool(GetParam().substr(0, GetParam().find(' '))))
    GTEST_SKIP() << GetParam() << ": the tool is not installed";
  make_tree(kRichTree);
  expect_same_as_python(archive(GetParam() + " t"));
}
INSTANTIATE_TEST_SUITE_P(Tools, RichTree,
                         testing::Values("tar --format=gnu -cf -", "tar --format=oldgnu -cf -",
                                         "tar --format=pax -cf -", "bsdtar --format=gnutar -cf -"));

struct SparseTree : TarOracleTest {};
TEST_P(SparseTree, IsReadAsPythonReadsIt) {
  if (!have_tool("python3") || !have_tool(GetParam().substr(0, GetParam().find(' '))))
    GTEST_SKIP() << GetParam() << ": the tool is not installed";
  make_tree(kSparseTree);
  const auto tar = archive(GetParam() + " t");
  expect_same_as_python(tar);
  const auto entries = parse_tar(tar);
  EXPECT_EQ(std::ranges::count_if(entries, [](const KeptEntry& kept) { return kept.entry.sparse; }), 2);
}
INSTANTIATE_TEST_SUITE_P(Tools, SparseTree,
                         testing::Values("tar --sparse --format=gnu -cf -", "tar --sparse --format=oldgnu -cf -",
                                         "tar --sparse --format=pax --sparse-version=0.0 -cf -",
                                         "tar --sparse --format=pax --sparse-version=0.1 -cf -",
                                         "tar --sparse --format=pax --sparse-version=1.0 -cf -"));

}  // namespace
}  // namespace varve::codec
