#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include <fmt/format.h>

#include "core/index/merge/flat_tree.h"

namespace varve::index {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Layers entry by entry; each content gets its own place in the layer's stream.
class LayerBuilder {
 public:
  LayerBuilder& file(const std::string& path, std::string_view content) {
    auto& entry = add(FileType::kRegular, path);
    entry.size = content.size();
    if (!content.empty()) {
      entry.content_digest = digest_of(content);
      entry.runs.push_back({.file_offset = 0, .stream_offset = stream_ + 512, .length = content.size()});
    }
    stream_ += 512 + (content.size() + 511) / 512 * 512;
    return *this;
  }
  LayerBuilder& folder(const std::string& path) { return add(FileType::kDirectory, path), *this; }
  LayerBuilder& symlink(const std::string& path, const std::string& target) {
    return add(FileType::kSymlink, path).link_target = target, *this;
  }
  LayerBuilder& hard_link(const std::string& path, const std::string& target) {
    return add(FileType::kHardLink, path).link_target = target, *this;
  }
  LayerBuilder& whiteout(const std::string& folder, const std::string& name) {
    return add(FileType::kRegular, join(folder, ".wh." + name)), *this;
  }
  LayerBuilder& opaque(const std::string& folder) {
    return add(FileType::kRegular, join(folder, ".wh..wh..opq")), *this;
  }
  LayerEntries take() { return {.layer_digest = digest_of("layer"), .entries = std::move(entries_)}; }
  const std::vector<LayerEntry>& entries() const { return entries_; }
  std::uint64_t stream_bytes() const { return stream_; }

  static std::string join(const std::string& folder, const std::string& name) {
    return folder.empty() ? name : folder + "/" + name;
  }

 private:
  LayerEntry& add(FileType type, const std::string& path) {
    auto& entry = entries_.emplace_back();
    entry.type = type;
    entry.path = path;
    return entry;
  }
  std::vector<LayerEntry> entries_;
  std::uint64_t stream_ = 0;
};

CompressedShares half_of(std::uint64_t stream_bytes) {
  CompressedShares shares;
  shares.add(stream_bytes, stream_bytes / 2);
  return shares;
}

void put(FlatTreeMaker& maker, LayerBuilder& layer) {
  const auto shares = half_of(layer.stream_bytes());
  maker.add(layer.take(), shares);
}

std::vector<std::string> hidden_of(const FlatTree& tree) {
  std::vector<std::string> lines;
  for (const auto& hidden : tree.hidden)
    lines.push_back(fmt::format("{} of {}: {} by {}{}", hidden.path, hidden.layer,
                                hidden.deleted ? "deleted" : "replaced", hidden.by_layer,
                                hidden.same_content ? ", the same" : ""));
  std::ranges::sort(lines);
  return lines;
}

TEST(HiddenFilesTest, TellsWhatUpperLayersHideAndWhy) {
  FlatTreeMaker maker;
  LayerBuilder base, middle, top;
  base.file("a", "one").file("b", "two").file("c/d", "three").file("c/e", "four").file("kept", "five");
  middle.file("a", "one").file("b", "TWO").whiteout("c", "d");
  top.opaque("c").file("c/f", "six").file("b", "2");
  for (auto* layer : {&base, &middle, &top}) put(maker, *layer);
  const auto tree = maker.finish();
  EXPECT_THAT(hidden_of(tree),
              ElementsAre("a of 0: replaced by 1, the same", "b of 0: replaced by 1", "b of 1: replaced by 2",
                          "c/d of 0: deleted by 1", "c/e of 0: deleted by 2"));
  EXPECT_EQ(tree.entries.at("b").layer, 2u);
  EXPECT_EQ(tree.entries.at("kept").layer, 0u);
  EXPECT_FALSE(tree.entries.contains("c/e"));
}

TEST(HiddenFilesTest, AFileLivesAsLongAsOneOfItsNames) {
  FlatTreeMaker maker;
  LayerBuilder base, top;
  base.file("z", "content").hard_link("a", "z").file("gone", "x").hard_link("gone2", "gone");
  top.whiteout("", "z").whiteout("", "gone").file("gone2", "new");
  put(maker, base);
  put(maker, top);
  const auto tree = maker.finish();
  EXPECT_THAT(hidden_of(tree), ElementsAre("gone of 0: replaced by 1"));
  EXPECT_TRUE(tree.entries.at("a").is_first_name());
  EXPECT_EQ(tree.find_regular("a")->size, 7u);
}

TEST(HiddenFilesTest, CountsAnInodeUnderItsFirstName) {
  FlatTreeMaker maker;
  LayerBuilder base;
  base.file("z", "content").hard_link("a", "z").hard_link("m", "z");
  put(maker, base);
  const auto tree = maker.finish();
  EXPECT_TRUE(tree.entries.at("a").is_first_name());
  EXPECT_FALSE(tree.entries.at("m").is_first_name());
  EXPECT_FALSE(tree.entries.at("z").is_first_name());
  EXPECT_THAT(tree.hidden, IsEmpty());
}

TEST(HiddenFilesTest, ReplacingAFolderHidesAllThatIsBelow) {
  FlatTreeMaker maker;
  LayerBuilder base, top;
  base.file("d/e/f", "1").symlink("d/l", "e");
  top.file("d", "now a file");
  put(maker, base);
  put(maker, top);
  const auto tree = maker.finish();
  EXPECT_THAT(hidden_of(tree), ElementsAre("d/e/f of 0: replaced by 1", "d/l of 0: replaced by 1"));
}

TEST(HiddenFilesTest, FindsNoFileOfOddNames) {
  FlatTreeMaker maker;
  LayerBuilder base;
  base.file("a/b", "x");
  put(maker, base);
  const auto tree = maker.finish();
  for (const auto* path : {"", "a", "a/b/c", "/a/b", "a//b", "a/b/", "b"})
    EXPECT_EQ(tree.find_regular(path), nullptr) << path;
  EXPECT_NE(tree.find_regular("a/b"), nullptr);
}

TEST(CompressedSharesTest, GivesEachEntryItsPartAndLosesNothing) {
  LayerBuilder layer;
  layer.folder("d").file("d/a", std::string(1000, 'a')).symlink("d/l", "a").file("d/b", std::string(3000, 'b'));
  CompressedShares shares;
  shares.add(1536, 300);  // densely packed at first
  shares.add(layer.stream_bytes(), 2000);
  const auto parts = shares_of_entries(layer.entries(), shares);
  ASSERT_EQ(parts.size(), 4u);
  std::uint64_t sum = 0;
  for (const auto part : parts) sum += part;
  EXPECT_EQ(sum, shares.before(layer.stream_bytes()));
  EXPECT_EQ(shares.before(0), 0u);
  EXPECT_EQ(shares.before(1536), 300u);
  EXPECT_EQ(shares.before(1u << 30), 2000u);
  EXPECT_GT(parts[3], parts[1]);
  EXPECT_GT(parts[0], 0u);  // its header
}

TEST(CompressedSharesTest, SurvivesPlacesAndEntriesInNoOrder) {
  CompressedShares shares;
  shares.add(100, 10);
  shares.add(50, 20);
  shares.add(200, 5);
  shares.add(300, 30);
  EXPECT_EQ(shares.before(300), 30u);
  LayerEntry late, early;
  late.size = early.size = 10;
  late.runs = {{.file_offset = 0, .stream_offset = 250, .length = 10}};
  early.runs = {{.file_offset = 0, .stream_offset = 0, .length = 10}};
  std::uint64_t sum = 0;
  for (const auto part : shares_of_entries({late, early, LayerEntry()}, shares)) sum += part;
  EXPECT_LE(sum, 30u);
}

// The same in the plainest way: names and contents, without inodes, symlinks followed nowhere.
class PlainStack {
 public:
  struct File {
    std::string content;
    std::uint32_t layer = 0;
    std::size_t entry = 0;
    bool operator==(const File&) const = default;
  };
  using Tree = std::map<std::string, std::optional<File>>;  // absent: a folder

  void add(const std::vector<LayerEntry>& entries, const std::map<std::size_t, std::string>& contents) {
    const auto before = tree_;
    for (const auto& entry : entries) {
      const auto slash = entry.path.rfind('/');
      const auto folder = slash == std::string::npos ? std::string() : entry.path.substr(0, slash);
      const auto name = entry.path.substr(slash == std::string::npos ? 0 : slash + 1);
      if (name == ".wh..wh..opq") {
        std::erase_if(tree_,
                      [&](const auto& one) { return is_below(one.first, folder) && before.contains(one.first); });
      } else if (name.starts_with(".wh.")) {
        remove(LayerBuilder::join(folder, name.substr(4)));
      }
    }
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto& entry = entries[i];
      if (entry.path.find(".wh.") != std::string::npos) continue;
      if (entry.type == FileType::kDirectory) {
        put_parents(entry.path);
        put_folder(entry.path);
        continue;
      }
      auto file = entry.type == FileType::kHardLink ? tree_.at(entry.link_target).value()
                                                    : File{.content = contents.at(i), .layer = layers_, .entry = i};
      put_parents(entry.path);
      if (tree_.contains(entry.path)) remove(entry.path);
      tree_[entry.path] = std::move(file);
    }
    ++layers_;
  }

  const Tree& tree() const { return tree_; }

 private:
  static bool is_below(const std::string& path, const std::string& folder) {
    return folder.empty() || path.starts_with(folder + "/");
  }
  void remove(const std::string& path) {
    std::erase_if(tree_, [&](const auto& one) { return one.first == path || is_below(one.first, path); });
  }
  void put_parents(const std::string& path) {
    for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
      put_folder(path.substr(0, slash));
  }
  void put_folder(const std::string& path) {
    const auto found = tree_.find(path);
    if (found != tree_.end() && !found->second) return;
    tree_[path] = std::nullopt;
  }

  Tree tree_;
  std::uint32_t layers_ = 0;
};

// Random layers over few names, so that they meet often.
class RandomLayers {
 public:
  explicit RandomLayers(unsigned seed) : random_(seed) {}

  LayerBuilder make(const PlainStack::Tree& below, std::map<std::size_t, std::string>& contents) {
    LayerBuilder layer;
    std::set<std::string> own;  // names of this layer, so that an entry does not stand below a file of the same layer
    const int count = 1 + int(random_() % 12);
    for (int i = 0; i < count; ++i) {
      const auto path = random_path();
      const bool clashes = std::ranges::any_of(own, [&](const std::string& other) {
        return path == other || path.starts_with(other + "/") || other.starts_with(path + "/");
      });
      if (clashes) continue;
      switch (random_() % 8) {
        case 0:
          layer.whiteout(folder_of(path), name_of(path));
          break;
        case 1:
          if (below.contains(path) && !below.at(path)) layer.opaque(path);
          break;
        case 2:
          layer.folder(path);
          break;
        case 3:
          add_link(layer, path, own, contents);
          break;
        default:
          contents[layer.entries().size()] = std::string(random_() % 4, char('a' + random_() % 3));
          layer.file(path, contents[layer.entries().size()]);
          own.insert(path);
      }
    }
    return layer;
  }

 private:
  // To a file of this very layer: those of lower layers may have gone.
  void add_link(LayerBuilder& layer, const std::string& path, std::set<std::string>& own,
                const std::map<std::size_t, std::string>&) {
    if (own.empty()) return;
    auto target = own.begin();
    std::advance(target, random_() % own.size());
    layer.hard_link(path, *target);
    own.insert(path);
  }
  std::string random_path() {
    std::string path(1, char('a' + random_() % 3));
    for (unsigned depth = random_() % 3; depth > 0; --depth) path += std::string("/") + char('a' + random_() % 3);
    return path;
  }
  static std::string folder_of(const std::string& path) {
    return path.rfind('/') == std::string::npos ? "" : path.substr(0, path.rfind('/'));
  }
  static std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  std::mt19937 random_;
};

TEST(HiddenFilesTest, AgreesWithThePlainestWayOnRandomLayers) {
  std::size_t hidden_seen = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    FlatTreeMaker maker;
    PlainStack plain;
    RandomLayers random(seed);
    std::vector<std::vector<LayerEntry>> layers;
    const int count = 1 + int(seed % 5);
    for (int i = 0; i < count; ++i) {
      std::map<std::size_t, std::string> contents;
      auto layer = random.make(plain.tree(), contents);
      plain.add(layer.entries(), contents);
      layers.push_back(layer.entries());
      put(maker, layer);
    }
    const auto tree = maker.finish();

    std::map<std::string, std::string> expected, actual;
    std::set<std::pair<std::uint32_t, std::size_t>> visible;
    for (const auto& [path, file] : plain.tree()) {
      expected[path] = file ? fmt::format("{} bytes of layer {}", file->content.size(), file->layer) : "folder";
      if (file) visible.emplace(file->layer, file->entry);
    }
    for (const auto& [path, file] : tree.entries) {
      if (path.empty()) continue;  // the root
      actual[path] =
          file.type == FileType::kDirectory ? "folder" : fmt::format("{} bytes of layer {}", file.size, file.layer);
    }
    ASSERT_EQ(actual, expected) << "seed " << seed;

    // Hidden is each regular entry that no visible name leads to.
    std::multiset<std::string> expected_hidden, actual_hidden;
    for (std::uint32_t layer = 0; layer < layers.size(); ++layer) {
      for (std::size_t i = 0; i < layers[layer].size(); ++i) {
        const auto& entry = layers[layer][i];
        if (entry.type == FileType::kRegular && entry.path.find(".wh.") == std::string::npos &&
            !visible.contains({layer, i}))
          expected_hidden.insert(fmt::format("{}:{}:{}", layer, entry.path, entry.size));
      }
    }
    for (const auto& hidden : tree.hidden) {
      actual_hidden.insert(fmt::format("{}:{}:{}", hidden.layer, hidden.path, hidden.size));
      ASSERT_GE(hidden.by_layer, hidden.layer) << "seed " << seed;
    }
    ASSERT_EQ(actual_hidden, expected_hidden) << "seed " << seed;
    hidden_seen += actual_hidden.size();
  }
  EXPECT_GT(hidden_seen, 1000u);  // else the layers did not meet
}

}  // namespace
}  // namespace varve::index
