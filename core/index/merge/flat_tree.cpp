#include "core/index/merge/flat_tree.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/base/errors.h"

namespace varve::index {

const FlatEntry* FlatTree::find_regular(std::string_view path) const {
  const auto found = entries.find(path);
  return found != entries.end() && found->second.type == FileType::kRegular ? &found->second : nullptr;
}

FlatTreeMaker::FlatTreeMaker()
    : merger_([this](const TreeInode& removed, std::uint32_t by_layer, bool deleted) {
        note_removal(removed, by_layer, deleted);
      }) {
  flat_.has_elf_facts = true;
}

void FlatTreeMaker::add(LayerEntries layer, const CompressedShares& shares) {
  const auto compressed = shares_of_entries(layer.entries, shares);
  flat_.has_elf_facts = flat_.has_elf_facts && layer.has_elf_facts;
  auto& [facts, paths] = layers_.emplace_back();
  facts.reserve(layer.entries.size());
  paths.reserve(layer.entries.size());
  for (std::size_t i = 0; i < layer.entries.size(); ++i) {
    const auto& entry = layer.entries[i];
    paths.add(entry.path);
    facts.push_back({.type = entry.type,
                     .visible = false,
                     .size = entry.size,
                     .compressed_bytes = compressed[i],
                     .content = entry.content_digest,
                     .elf = entry.elf});
  }
  merger_.add(std::move(layer));
}

void FlatTreeMaker::note_removal(const TreeInode& removed, std::uint32_t by_layer, bool deleted) {
  std::vector<const TreeInode*> waiting{&removed};
  while (!waiting.empty()) {
    const auto& inode = *waiting.back();
    waiting.pop_back();
    if (inode.type == FileType::kDirectory) {
      for (const auto& [name, child] : inode.children) waiting.push_back(child.get());
    } else if (inode.entry != kNoEntry) {
      removals_[{inode.layer, inode.entry}] = {.by_layer = by_layer, .deleted = deleted};
    }
  }
}

FlatTree FlatTreeMaker::finish() {
  auto tree = merger_.finish();
  flat_.layers = tree.layers;
  put_all(std::move(*tree.root));
  list_hidden();
  layers_.clear();
  return std::move(flat_);
}

void FlatTreeMaker::put(const std::string& path, TreeInode inode) {
  if (path.size() > kMaxTreePathBytes)
    fail<Unsupported>("image: {:.100}…: a name of more than {} bytes", path, kMaxTreePathBytes);
  if (flat_.entries.size() >= kMaxTreeNames) fail<Unsupported>("image: more than {} files", kMaxTreeNames);
  auto& flat = flat_.entries[path];
  flat.attributes() = std::move(inode.attributes());
  flat.size = inode.type == FileType::kRegular ? inode.size : 0;
  flat.symlink_target = std::move(inode.symlink_target);
  flat.layer = inode.layer;
  flat.entry = inode.entry;
  flat.runs = std::move(inode.runs);
  flat.implied = inode.entry == kNoEntry;
  if (flat.implied) return;
  auto& fact = layers_.at(inode.layer).facts.at(inode.entry);
  fact.visible = true;
  flat.compressed_bytes = fact.compressed_bytes;
  if (inode.type != FileType::kRegular || inode.size == 0) return;
  flat.content_digest = fact.content;
  flat.elf = fact.elf;
}

// The tree of inodes goes as the flat one comes: both at once would be most of what an image takes.
void FlatTreeMaker::put_all(TreeInode root) {
  std::vector<std::pair<decltype(root.children), std::string>> waiting;
  waiting.emplace_back(std::move(root.children), "");
  put("", std::move(root));
  std::vector<std::pair<std::shared_ptr<TreeInode>, std::string>> shared;
  while (!waiting.empty()) {
    const auto [children, prefix] = std::move(waiting.back());
    waiting.pop_back();
    for (const auto& [name, inode] : children) {
      const auto path = prefix + name;
      if (inode->type == FileType::kDirectory) waiting.emplace_back(std::move(inode->children), path + '/');
      if (inode.use_count() == 1) {
        put(path, std::move(*inode));
      } else {
        put(path, *inode);
        shared.emplace_back(inode, path);
      }
    }
  }
  // Names are met in the order of directories ("a-b" comes before "a/b" in that of whole paths): which name of an inode
  // is the first is known only now.
  std::ranges::sort(shared);
  const std::string* first = nullptr;
  for (std::size_t i = 0; i < shared.size(); ++i) {
    if (i == 0 || shared[i].first != shared[i - 1].first)
      first = &shared[i].second;
    else
      flat_.entries.at(shared[i].second).link_of = *first;
  }
}

void FlatTreeMaker::list_hidden() {
  std::vector<const Fact*> facts;  // of those that are hidden
  for (std::uint32_t layer = 0; layer < layers_.size(); ++layer) {
    for (std::uint32_t entry = 0; entry < layers_[layer].facts.size(); ++entry) {
      const auto& fact = layers_[layer].facts[entry];
      if (fact.visible || (fact.type != FileType::kRegular && fact.type != FileType::kSymlink)) continue;
      const auto removal = removals_.find({layer, entry});
      if (removal == removals_.end()) continue;  // a whiteout, or what aufs left behind: never part of a tree
      const auto [by_layer, deleted] = removal->second;
      facts.push_back(&fact);
      flat_.hidden.push_back({.path = layers_[layer].paths.at(entry),
                              .type = fact.type,
                              .size = fact.size,
                              .layer = layer,
                              .compressed_bytes = fact.compressed_bytes,
                              .by_layer = by_layer,
                              .deleted = deleted,
                              .same_content = false});
    }
  }
  compare_hidden(facts);
}

// With what took their place: what the layer that hides them has under the same name, the last of several.
void FlatTreeMaker::compare_hidden(const std::vector<const Fact*>& facts) {
  using ByPath = std::unordered_map<std::string_view, const Fact*>;
  std::map<std::uint32_t, ByPath> replacing;  // by layer; of names that are asked for alone
  const auto is_asked_for = [](const HiddenFile& file) { return !file.deleted && file.type == FileType::kRegular; };
  for (const auto& file : flat_.hidden)
    if (is_asked_for(file)) replacing[file.by_layer].emplace(file.path, nullptr);
  for (auto& [layer, by_path] : replacing) {
    const auto& [others, paths] = layers_.at(layer);
    for (std::size_t entry = 0; entry < others.size(); ++entry) {
      if (const auto found = by_path.find(paths.at(entry)); found != by_path.end()) found->second = &others[entry];
    }
  }
  for (std::size_t i = 0; i < facts.size(); ++i) {
    auto& file = flat_.hidden[i];
    if (!is_asked_for(file)) continue;
    const auto& fact = *facts[i];
    const auto* other = replacing.at(file.by_layer).at(file.path);
    file.same_content = other != nullptr && other->type == FileType::kRegular && other->size == fact.size &&
                        (fact.size == 0 || (fact.content != Digest() && other->content == fact.content));
  }
}

FlatTree flatten(std::vector<LayerEntries> layers) {
  FlatTreeMaker maker;
  for (auto& layer : layers) maker.add(std::move(layer));
  return maker.finish();
}

LayerEntries read_layer_entries_of(LocalIndex& local, const LoadedIndex& index, const oci::Image& image,
                                   std::size_t layer, std::uint64_t* fetched_bytes) {
  const auto& blob = index.blobs.layers.at(layer).entries;
  const auto what = "index blob " + blob.digest.to_string();
  if (fetched_bytes != nullptr && !local.repository().has_blob(blob)) *fetched_bytes += blob.size;
  auto entries = LayerEntries::decode(local.blob(blob, *index.source, kMaxLayerEntriesBytes), what);
  const auto& digest = image.manifest.layers.at(layer).digest;
  if (entries.layer_digest != digest)
    fail<CorruptData>("{}: holds the entries of layer {}, not of {}", what, entries.layer_digest.to_string(),
                      digest.to_string());
  return entries;
}

FlatTree read_flat_tree(LocalIndex& local, const LoadedIndex& index, const oci::Image& image,
                        std::uint64_t* fetched_bytes) {
  FlatTreeMaker maker;
  for (std::size_t layer = 0; layer < index.blobs.layers.size(); ++layer)
    maker.add(read_layer_entries_of(local, index, image, layer, fetched_bytes), CompressedShares(*index.maps[layer]));
  return maker.finish();
}

bool same_entry(const FlatEntry& before, const FlatEntry& after, std::string* why) {
  const auto differs = [&](std::string text) {
    if (why != nullptr) *why = std::move(text);
    return false;
  };
  if (before.type != after.type)
    return differs(fmt::format("type {} instead of {}", int(after.type), int(before.type)));
  if (before.mode != after.mode) return differs(fmt::format("mode {:04o} instead of {:04o}", after.mode, before.mode));
  if (before.uid != after.uid || before.gid != after.gid)
    return differs(fmt::format("owner {}:{} instead of {}:{}", after.uid, after.gid, before.uid, before.gid));
  if (before.mtime_seconds != after.mtime_seconds || before.mtime_nanoseconds != after.mtime_nanoseconds)
    return differs(fmt::format("time {}.{:09} instead of {}.{:09}", after.mtime_seconds, after.mtime_nanoseconds,
                               before.mtime_seconds, before.mtime_nanoseconds));
  if (before.device_major != after.device_major || before.device_minor != after.device_minor)
    return differs(fmt::format("device {}:{} instead of {}:{}", after.device_major, after.device_minor,
                               before.device_major, before.device_minor));
  if (before.size != after.size) return differs(fmt::format("{} bytes instead of {}", after.size, before.size));
  if (before.symlink_target != after.symlink_target)
    return differs(fmt::format("leads to {:.200} instead of {:.200}", after.symlink_target, before.symlink_target));
  if (before.link_of != after.link_of)
    return differs(fmt::format("a hard link of '{:.200}' instead of '{:.200}'", after.link_of, before.link_of));
  if (before.xattrs != after.xattrs) return differs("other extended attributes");
  if (before.content_digest != after.content_digest)
    return differs(
        fmt::format("content {} instead of {}", after.content_digest.to_string(), before.content_digest.to_string()));
  return true;
}

}  // namespace varve::index
