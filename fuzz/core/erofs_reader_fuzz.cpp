// The tree's reader, as a mount uses it and as verify does. Checksum and UUID are put right, so that what lies behind
// it is reached.
#include <algorithm>
#include <cstdint>

#include "core/base/errors.h"
#include "core/index/format/erofs.h"
#include "core/index/format/internal/erofs_format.h"

namespace {

using namespace varve;
using namespace varve::index;

constexpr std::size_t kMaxEntries = 200;  // visited by one input

void use(const ErofsReader& reader, Nid nid, FileType type) {
  try {
    reader.inode(nid);
    reader.xattrs(nid);
    if (type == FileType::kRegular) reader.runs(nid);
    if (type == FileType::kSymlink) reader.symlink_target(nid);
  } catch (const CorruptData&) {
  }
}

void walk(const ErofsReader& reader) {
  std::size_t entries = 0;
  std::vector<Nid> directories{reader.root()};
  while (!directories.empty()) {
    const auto directory = directories.back();
    directories.pop_back();
    try {
      reader.read_directory(directory, 0, [&](std::string_view name, Nid nid, FileType type, std::uint64_t position) {
        use(reader, nid, type);
        reader.lookup(directory, name);
        reader.read_directory(directory, position,
                              [](std::string_view, Nid, FileType, std::uint64_t) { return false; });
        if (type == FileType::kDirectory && name != "." && name != "..") directories.push_back(nid);
        return ++entries < kMaxEntries;
      });
    } catch (const CorruptData&) {
    }
    if (entries >= kMaxEntries) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto image = to_bytes(std::as_bytes(std::span(data, size)));
  if (image.size() >= erofs::kSuperOffset + erofs::kBlock) {
    image.resize(image.size() / erofs::kBlock * erofs::kBlock);
    auto* const super = image.data() + erofs::kSuperOffset;
    store_le(super, erofs::kMagic);
    store_le(super + erofs::super::kBlocksAt, std::uint32_t(image.size() / erofs::kBlock));
    erofs::seal(image);
  }
  try {
    const ErofsReader reader(image, "input");
    walk(reader);
    for (const char* path : {"usr/bin/python", "link", "loop", "../../x"}) reader.resolve(path, true);
    reader.check();
  } catch (const CorruptData&) {
  }
  return 0;
}
