// Entries of hostile layers on top of each other: whiteouts, late hard links, links among parents. Refused, or a tree
// that is the same twice, is written, and reads as it was made. A script of bytes stands for the layers, so that
// mutations stay entries: for each a byte of type and flags, one for each of two paths out of a few names.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/merge/flat_tree.h"
#include "core/index/merge/merge_layers.h"
#include "testing/trees.h"

namespace {

using namespace varve;
using namespace varve::index;

constexpr std::size_t kMaxEntries = 64;
constexpr std::uint64_t kStreamBytes = 1 << 20;

class Script {
 public:
  explicit Script(ByteView bytes) : bytes_(bytes) {}
  bool ended() const { return at_ >= bytes_.size(); }
  unsigned next() { return ended() ? 0 : unsigned(bytes_[at_++]); }

  // Up to three names deep.
  std::string path() {
    static constexpr std::array<const char*, 8> kNames{"a", "b", "c", "d", ".wh.a", ".wh.b", ".wh..wh..opq", "e"};
    const auto choice = next();
    std::string path = kNames[choice & 7];
    if ((choice & 0x40) != 0) path = std::string(kNames[(choice >> 3) & 3]) + "/" + path;
    if ((choice & 0x80) != 0) path = std::string(kNames[(choice >> 5) & 1]) + "/" + path;
    return path;
  }

 private:
  ByteView bytes_;
  std::size_t at_ = 0;
};

LayerEntry entry_of(Script& script) {
  static constexpr std::array<FileType, 8> kTypes{FileType::kRegular,  FileType::kDirectory, FileType::kSymlink,
                                                  FileType::kHardLink, FileType::kRegular,   FileType::kDirectory,
                                                  FileType::kFifo,     FileType::kCharDevice};
  LayerEntry entry;
  const auto choice = script.next();
  entry.type = kTypes[choice & 7];
  entry.mode = 0644;
  entry.uid = choice >> 6;
  entry.path = (choice & 0x38) == 0x38 ? "" : script.path();
  if (entry.path.empty()) entry.type = FileType::kDirectory;
  if (entry.type == FileType::kHardLink) entry.link_target = script.path();
  if (entry.type == FileType::kSymlink)
    entry.link_target = (choice & 8) != 0    ? "/" + script.path()
                        : (choice & 16) != 0 ? "../" + script.path()
                                             : script.path();
  if (entry.type == FileType::kRegular && (choice & 8) != 0) {
    entry.size = 100 + choice;
    entry.runs = {{.file_offset = 0, .stream_offset = 512 * std::uint64_t(choice), .length = entry.size}};
    entry.content_digest = digest_of("content");
  }
  return entry;
}

std::vector<LayerEntries> layers_of(ByteView bytes) {
  Script script(bytes);
  std::vector<LayerEntries> layers(1 + script.next() % 4);
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].layer_digest = digest_of(std::string(1, char('0' + i)));
  for (std::size_t i = 0; i < kMaxEntries && !script.ended(); ++i)
    layers[i * layers.size() / kMaxEntries].entries.push_back(entry_of(script));
  return layers;
}

Tree merged(const std::vector<LayerEntries>& layers) {
  LayerMerger merger;
  for (const auto& layer : layers) merger.add(layer);
  return merger.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto layers = layers_of(std::as_bytes(std::span(data, size)));
  try {
    const auto tree = merged(layers);
    if (test::listing_of(merged(layers)) != test::listing_of(tree)) std::abort();
    const std::vector<std::string> tags(layers.size(), digest_of("stream").hex());
    const auto image = write_erofs(tree, tags, std::vector<std::uint64_t>(layers.size(), kStreamBytes));
    const ErofsReader reader(image.bytes, "written");
    reader.check();
    if (test::listing_of(reader) != test::listing_of(tree)) std::abort();
    const auto flat = flatten(layers);
    for (const auto& [path, entry] : flat.entries)
      if (!reader.resolve(path, false)) std::abort();
  } catch (const CorruptData&) {
  } catch (const Unsupported&) {
  }
  return 0;
}
