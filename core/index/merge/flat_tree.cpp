#include "core/index/merge/flat_tree.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/base/errors.h"
#include "core/index/merge/merge_layers.h"

namespace varve::index {
namespace {

// What merging does not keep of an entry.
struct EntryContent {
  Digest digest;
  std::shared_ptr<const ElfFacts> elf;
};

class Flattener {
 public:
  Flattener(const Tree& tree, const std::vector<std::vector<EntryContent>>& contents) : contents_(contents) {
    flat_.layers = tree.layers;
    add("", *tree.root);
    add_children("", *tree.root);
    // Names are given in byte order of directories, not of whole paths ("a-b" comes before "a/b"): which name of an
    // inode is the first is known only now.
    for (auto& [inode, names] : names_) {
      if (names.size() == 1) continue;
      std::ranges::sort(names);
      for (std::size_t i = 1; i < names.size(); ++i) flat_.entries.at(names[i]).link_of = names.front();
    }
  }
  FlatTree take() { return std::move(flat_); }

 private:
  void add_children(const std::string& path, const TreeInode& directory) {
    for (const auto& [name, child] : directory.children) {
      const auto child_path = path.empty() ? name : path + "/" + name;
      add(child_path, *child);
      if (child->type == FileType::kDirectory) {
        add_children(child_path, *child);
      } else {
        names_[child.get()].push_back(child_path);
      }
    }
  }

  void add(const std::string& path, const TreeInode& inode) {
    FlatEntry entry;
    entry.type = inode.type;
    entry.mode = inode.mode;
    entry.uid = inode.uid;
    entry.gid = inode.gid;
    entry.mtime_seconds = inode.mtime_seconds;
    entry.mtime_nanoseconds = inode.mtime_nanoseconds;
    entry.device_major = inode.device_major;
    entry.device_minor = inode.device_minor;
    entry.size = inode.type == FileType::kRegular ? inode.size : 0;
    entry.symlink_target = inode.symlink_target;
    entry.xattrs = inode.xattrs;
    entry.layer = inode.layer;
    entry.runs = inode.runs;
    entry.implied = inode.entry == kNoEntry;
    if (inode.type == FileType::kRegular && inode.size != 0 && !entry.implied) {
      const auto& content = contents_.at(inode.layer).at(inode.entry);
      entry.content_digest = content.digest;
      entry.elf = content.elf;
    }
    flat_.entries.emplace(path, std::move(entry));
  }

  const std::vector<std::vector<EntryContent>>& contents_;
  FlatTree flat_;
  std::unordered_map<const TreeInode*, std::vector<std::string>> names_;
};

}  // namespace

FlatTree flatten(std::vector<LayerEntries> layers) {
  LayerMerger merger;
  std::vector<std::vector<EntryContent>> contents;
  const bool has_elf_facts = std::ranges::all_of(layers, &LayerEntries::has_elf_facts);
  for (auto& layer : layers) {
    auto& of_layer = contents.emplace_back();
    of_layer.reserve(layer.entries.size());
    for (const auto& entry : layer.entries) of_layer.push_back({.digest = entry.content_digest, .elf = entry.elf});
    merger.add(std::move(layer));
  }
  auto flat = Flattener(merger.finish(), contents).take();
  flat.has_elf_facts = has_elf_facts;
  return flat;
}

LayerEntries read_layer_entries_of(LocalIndex& local, const LoadedIndex& index, const oci::Image& image,
                                   std::size_t layer, std::uint64_t* fetched_bytes) {
  const auto& blob = index.blobs.layers.at(layer).entries;
  const auto what = "index blob " + blob.digest.to_string();
  if (fetched_bytes != nullptr && !local.repository().has_blob(blob)) *fetched_bytes += blob.size;
  auto entries = LayerEntries::decode(local.blob(blob, *image.repository, kMaxLayerEntriesBytes), what);
  const auto& digest = image.manifest.layers.at(layer).digest;
  if (entries.layer_digest != digest)
    fail<CorruptData>("{}: holds the entries of layer {}, not of {}", what, entries.layer_digest.to_string(),
                      digest.to_string());
  return entries;
}

std::vector<LayerEntries> read_layer_entries(LocalIndex& local, const LoadedIndex& index, const oci::Image& image,
                                             std::uint64_t* fetched_bytes) {
  std::vector<LayerEntries> layers;
  for (std::size_t number = 0; number < index.blobs.layers.size(); ++number)
    layers.push_back(read_layer_entries_of(local, index, image, number, fetched_bytes));
  return layers;
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
