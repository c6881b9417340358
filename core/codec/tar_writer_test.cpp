#include "core/codec/tar_writer.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/codec_support.h"
#include "testing/tar_support.h"
#include "testing/temp_dir.h"

namespace varve::codec {
namespace {

using namespace test;

struct Item {
  TarEntry entry;
  std::string content = {};
};

TarEntry entry_of(FileType type, std::string name) {
  TarEntry entry;
  entry.type = type;
  entry.name = std::move(name);
  entry.mode = type == FileType::kDirectory ? 0755 : 0644;
  entry.mtime_seconds = 1'700'000'000;
  return entry;
}

Item file(std::string name, std::string content, void (*change)(TarEntry&) = nullptr) {
  Item item{.entry = entry_of(FileType::kRegular, std::move(name)), .content = std::move(content)};
  item.entry.size = item.content.size();
  if (change != nullptr) change(item.entry);
  return item;
}

Item other(FileType type, std::string name, std::string link = {}, void (*change)(TarEntry&) = nullptr) {
  Item item{.entry = entry_of(type, std::move(name))};
  item.entry.link_name = std::move(link);
  if (change != nullptr) change(item.entry);
  return item;
}

// One of everything that is hard to say in a tar. `for_all`: only what every reader understands.
std::vector<Item> hard_items(bool for_all) {
  std::vector<Item> items{
      other(FileType::kDirectory, ".", "", [](TarEntry& e) { e.mode = 0711; }),
      other(FileType::kDirectory, "d", "",
            [](TarEntry& e) {
              e.mode = 01777;
              e.mtime_nanoseconds = 5;
            }),
      file("d/empty", ""),
      file("d/one", "1"),
      file("d/block", std::string(512, 'b')),
      file("d/block-and-one", std::string(513, 'c')),
      file("d/setuid", "s",
           [](TarEntry& e) {
             e.mode = 06755;
             e.uid = 1000;
             e.gid = 2'097'151;
           }),
      file("d/large-owner", "o",
           [](TarEntry& e) {
             e.uid = 4'000'000'000;
             e.gid = 2'097'152;
           }),
      file("d/nanoseconds", "n", [](TarEntry& e) { e.mtime_nanoseconds = 123'456'789; }),
      file("d/1966", "t", [](TarEntry& e) { e.mtime_seconds = -123'456'789; }),
      file("d/1901", "t", [](TarEntry& e) { e.mtime_seconds = -2'177'452'800; }),
      file("d/before-1970", "t",
           [](TarEntry& e) {
             e.mtime_seconds = -1;
             e.mtime_nanoseconds = 500'000'000;
           }),
      file("d/long-before", "t",
           [](TarEntry& e) {
             e.mtime_seconds = -3;
             e.mtime_nanoseconds = 1;
           }),
      file("d/2500", "t", [](TarEntry& e) { e.mtime_seconds = 16'725'225'600; }),
      file(std::string(100, 'a'), "x"),
      file(std::string(101, 'a'), "x"),
      file(std::string(155, 'p') + "/" + std::string(100, 'n'), "x"),
      file(std::string(156, 'p') + "/" + std::string(100, 'n'), "x"),
      other(FileType::kDirectory, std::string(99, 'd')),
      other(FileType::kDirectory, std::string(100, 'd')),
      other(FileType::kDirectory, std::string(60, 'p') + "/" + std::string(100, 'd')),
      file("d/grün", "utf-8"),
      file("d/not-utf8-\xff\xfe", "x"),
      other(FileType::kHardLink, "d/hard", "d/one"),
      other(FileType::kHardLink, "d/hard-long", std::string(101, 'a')),
      other(FileType::kSymlink, "d/soft", "../somewhere else"),
      other(FileType::kSymlink, "d/soft-long", std::string(4095, 't')),
      other(FileType::kSymlink, "d/soft-utf8", "zur Tür"),
      other(FileType::kCharDevice, "d/null", "",
            [](TarEntry& e) {
              e.device_major = 1;
              e.device_minor = 3;
            }),
      other(FileType::kBlockDevice, "d/large-minor", "",
            [](TarEntry& e) {
              e.device_major = 4095;
              e.device_minor = 1'048'575;
            }),
      other(FileType::kFifo, "d/fifo"),
      file("d/.wh.gone", ""),
      file("d/capability", "x",
           [](TarEntry& e) {
             e.xattrs["security.capability"] = std::string("\1\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
           }),
      file("d/xattrs", "x",
           [](TarEntry& e) {
             e.xattrs["user.empty"] = "";
             e.xattrs["user.newline"] = "a\nb=c\n";
             e.xattrs["user.largest"] = std::string(65'536, 'v');
             for (int i = 0; i < 200; ++i) e.xattrs[fmt::format("user.n{}", i)] = std::string(std::size_t(i), 'x');
           }),
      file("last", "end"),
  };
  if (for_all) return items;
  items.push_back(file(std::string(300, 'l') + "\xff", "long and no text"));
  items.push_back(other(FileType::kSymlink, "d/soft-\xfe", std::string(200, 's') + "\xff"));
  items.push_back(other(FileType::kCharDevice, "d/too-large-for-octal", "", [](TarEntry& e) {
    e.device_major = 2'097'152;
    e.device_minor = 0xFFFF'FFFF;
  }));
  items.push_back(file("d/odd-attribute", "x", [](TarEntry& e) {
    e.xattrs["user.a=b"] = std::string("\0=%\n", 4);
    e.xattrs["user.\xff\xfe%"] = "raw";
  }));
  return items;
}

Bytes written(const std::vector<Item>& items, std::size_t step = 300) {
  Bytes tar;
  TarWriter writer([&](ByteView bytes) { append(tar, bytes); });
  for (const auto& [entry, content] : items) {
    writer.begin(entry);
    for (std::size_t at = 0; at < content.size(); at += step)
      writer.content(as_bytes(std::string_view(content).substr(at, step)));
  }
  writer.finish();
  return tar;
}

void expect_same(const TarEntry& in, const TarEntry& out) {
  SCOPED_TRACE(in.name);
  auto name = in.name;
  if (in.type == FileType::kDirectory && !name.ends_with('/')) name += '/';
  EXPECT_EQ(out.type, in.type);
  EXPECT_EQ(out.name, name);
  EXPECT_EQ(out.link_name, in.link_name);
  EXPECT_EQ(out.mode, in.mode);
  EXPECT_EQ(out.uid, in.uid);
  EXPECT_EQ(out.gid, in.gid);
  EXPECT_EQ(out.mtime_seconds, in.mtime_seconds);
  EXPECT_EQ(out.mtime_nanoseconds, in.mtime_nanoseconds);
  EXPECT_EQ(out.device_major, in.device_major);
  EXPECT_EQ(out.device_minor, in.device_minor);
  EXPECT_EQ(out.size, in.size);
  EXPECT_EQ(out.xattrs, in.xattrs);
}

TEST(TarWriterTest, WhatGoesInComesOut) {
  const auto items = hard_items(false);
  const auto tar = written(items);
  EXPECT_EQ(tar.size() % 512, 0u);
  const auto read = parse_tar(tar, 1000);
  ASSERT_EQ(read.size(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    expect_same(items[i].entry, read[i].entry);
    EXPECT_EQ(as_text(read[i].content), items[i].content);
  }
}

TEST(TarWriterTest, BytesAreAContract) {
  EXPECT_EQ(written(hard_items(false), 1), written(hard_items(false), 100'000));
  // A change here makes every rewritten layer of every image new: it needs a reason.
  EXPECT_EQ(digest_of(written(hard_items(false))).hex(),
            "c967ebe59f932c40b472b270dd065071f28fac76740c60d97d5c6a8fb7c695f6");
}

TEST(TarWriterTest, PlainEntriesNeedNoMoreThanTheirHeader) {
  EXPECT_EQ(written({file("usr/lib/file.py", "content")}).size(), 512u * 4);
}

TEST(TarWriterTest, FilesBeyondEightGigabytesAreAnnounced) {
  Bytes tar;
  TarWriter writer([&](ByteView bytes) { append(tar, bytes); });
  auto large = entry_of(FileType::kRegular, "large");
  large.size = 8'589'934'592;  // one more than eleven octal digits say
  writer.begin(large);
  KeepingTarListener listener;
  TarParser parser("tar", listener);
  parser.feed(tar);
  ASSERT_EQ(listener.entries.size(), 1u);
  EXPECT_EQ(listener.entries[0].entry.size, large.size);
  EXPECT_EQ(listener.entries[0].entry.data_stream_length, large.size);
}

TEST(TarWriterTest, WhatATarCannotSayIsRefused) {
  TarWriter writer([](ByteView) {});
  EXPECT_THROW(writer.begin(entry_of(FileType::kRegular, "")), Unsupported);
  EXPECT_THROW(writer.begin(entry_of(FileType::kRegular, std::string("a\0b", 3))), Unsupported);
  EXPECT_THROW(writer.begin(other(FileType::kSymlink, "a", std::string("a\0b", 3)).entry), Unsupported);
  EXPECT_THROW(writer.begin(file("a", "", [](TarEntry& e) { e.xattrs[std::string("user.\0", 6)] = "x"; }).entry),
               Unsupported);
  writer.begin(file("a", "1234").entry);
  EXPECT_THROW(writer.content(Bytes(5)), std::logic_error);
  writer.content(Bytes(3));
  EXPECT_THROW(writer.finish(), std::logic_error);
}

// Python's tarfile tells all that is in an entry, extended attributes too.
TEST(TarWriterTest, PythonReadsWhatWasWritten) {
  if (!have_tool("python3")) GTEST_SKIP() << "python3 is not installed";
  constexpr std::string_view kLister = R"(
import io, sys, tarfile
from decimal import Decimal
kinds = {b'0': 1, b'1': 15, b'2': 7, b'3': 3, b'4': 4, b'5': 2, b'6': 5}
with tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read()), encoding='utf-8', errors='surrogateescape') as tar:
    for e in tar:
        content = tar.extractfile(e).read() if e.isreg() else b''
        time = Decimal(e.pax_headers.get('mtime', e.mtime))
        line = '%d|%s|%s|%o|%d|%d|%d|%d|%d|%s|' % (
            kinds[e.type], e.name.rstrip('/'), e.linkname, e.mode, e.uid, e.gid, time * 10**9, e.devmajor, e.devminor,
            content.decode())
        names = sorted(n for n in e.pax_headers if n.startswith('SCHILY.xattr.'))
        line += ','.join(n[13:] + '=' + e.pax_headers[n].encode('utf-8', 'surrogateescape').hex() for n in names)
        sys.stdout.buffer.write(line.encode('utf-8', 'surrogateescape') + b'\n')
)";
  const varve::test::TempDir folder;
  write_file_atomically(folder / "list.py", as_bytes(kLister));
  const auto items = hard_items(true);
  const auto lines = std::string(as_text(run_tool("python3 '" + (folder / "list.py").string() + "'", written(items))));
  std::string expected;
  for (const auto& [e, content] : items) {
    const auto nanoseconds = __int128(e.mtime_seconds) * 1'000'000'000 + e.mtime_nanoseconds;
    expected += fmt::format("{}|{}|{}|{:o}|{}|{}|{}|{}|{}|{}|", int(e.type), e.name, e.link_name, e.mode, e.uid, e.gid,
                            nanoseconds, e.device_major, e.device_minor, content);
    bool first = true;
    for (const auto& [name, value] : e.xattrs) {
      expected += fmt::format("{}{}=", std::exchange(first, false) ? "" : ",", name);
      for (const unsigned char c : value) expected += fmt::format("{:02x}", c);
    }
    expected += '\n';
  }
  EXPECT_EQ(lines, expected);
}

// GNU tar and libarchive unpack it, and what they made is listed alike: names, modes, owners (numbers), times and
// contents.
TEST(TarWriterTest, GnuTarAndLibarchiveUnpackTheSameTree) {
  std::vector<std::string> tools;
  for (const auto* tool : {"tar", "bsdtar"})
    if (have_tool(tool)) tools.emplace_back(tool);
  if (tools.size() < 2) GTEST_SKIP() << "tar and bsdtar are not both installed";
  auto items = hard_items(true);
  // Anybody can unpack these, on any file system: no devices, no attributes, no symlink of 4095 bytes, no times before
  // 1901 or after 2446. Fractions of seconds before 1970 are beyond libarchive 3.6, which reads (and writes) -0.5 as
  // 0.5.
  std::erase_if(items, [](const Item& item) {
    const auto& e = item.entry;
    return e.type == FileType::kCharDevice || e.type == FileType::kBlockDevice || !e.xattrs.empty() || e.name == "." ||
           e.link_name.size() > 1000 || e.mtime_seconds < -2'000'000'000 || e.mtime_seconds > 15'000'000'000 ||
           (e.mtime_seconds < 0 && e.mtime_nanoseconds != 0);
  });
  const auto tar = written(items);
  std::string expected;
  for (const auto& [e, content] : items) {
    if (e.type == FileType::kDirectory) continue;
    expected += fmt::format(
        "{} {} {}\n", e.name,
        e.type == FileType::kHardLink ? "" : fmt::format("{}.{:09}", e.mtime_seconds, e.mtime_nanoseconds), content);
  }
  for (const auto& tool : tools) {
    const varve::test::TempDir folder;
    run_tool("cd '" + folder.path().string() + "' && " + tool + " -xpf - --no-same-owner 2>&1", tar);
    std::string actual;
    for (const auto& [e, content] : items) {
      if (e.type == FileType::kDirectory) continue;
      struct stat status {};
      const auto path = folder.path() / e.name;
      ASSERT_EQ(::lstat(path.c_str(), &status), 0) << tool << " " << path;
      const auto time = e.type == FileType::kHardLink
                            ? std::string()
                            : fmt::format("{}.{:09}", status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
      if (e.type == FileType::kRegular) {
        EXPECT_EQ(status.st_mode & 01777, e.mode & 01777) << tool << " " << path;
      }
      if (e.type == FileType::kHardLink) {
        EXPECT_TRUE(std::filesystem::equivalent(path, folder.path() / e.link_name));
      }
      if (e.type == FileType::kSymlink) {
        EXPECT_EQ(std::filesystem::read_symlink(path), e.link_name);
      }
      actual += fmt::format("{} {} {}\n", e.name, time,
                            e.type == FileType::kRegular ? std::string(as_text(read_file(path))) : "");
    }
    EXPECT_EQ(actual, expected) << tool;
  }
}

}  // namespace
}  // namespace varve::codec
