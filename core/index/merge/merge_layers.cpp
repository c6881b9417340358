#include "core/index/merge/merge_layers.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/errors.h"

namespace varve::index {
namespace {

using InodePtr = std::shared_ptr<TreeInode>;

constexpr std::string_view kWhiteoutPrefix = ".wh.";
constexpr std::string_view kAufsPrefix = ".wh..wh.";
constexpr std::string_view kOpaqueName = ".wh..wh..opq";
constexpr std::string_view kAufsLinks = ".wh..wh.plnk/";

struct SplitPath {
  std::string_view parent;  // "" = the root
  std::string_view name;
};

SplitPath split(std::string_view path) {
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return {.parent = "", .name = path};
  return {.parent = path.substr(0, slash), .name = path.substr(slash + 1)};
}

// True if the entry lies under a name that is no name of a file ("a/.wh.b/c").
bool lies_in_whiteout(std::string_view parent) {
  return parent.starts_with(kWhiteoutPrefix) || parent.find("/.wh.") != std::string_view::npos;
}

// Where an entry stands.
struct EntryPlace {
  std::uint32_t layer = 0;
  std::uint32_t entry = kNoEntry;
};

void take_attributes(TreeInode& inode, LayerEntry& entry, EntryPlace place) {
  inode.layer = place.layer;
  inode.entry = place.entry;
  inode.attributes() = std::move(entry.attributes());
}

// Moves what an entry describes into an inode of its own.
InodePtr make_inode(LayerEntry& entry, EntryPlace place) {
  auto inode = std::make_shared<TreeInode>();
  take_attributes(*inode, entry, place);
  inode->size = entry.type == FileType::kSymlink ? entry.link_target.size() : entry.size;
  if (entry.type == FileType::kSymlink) {
    inode->symlink_target = std::move(entry.link_target);
    inode->mode = 0777;  // as Linux makes every symlink, whatever the header says
  }
  inode->runs.reserve(entry.runs.size());
  for (const auto& run : entry.runs) inode->runs.push_back({.layer = place.layer, .run = run});
  return inode;
}

// One layer on its way into the tree.
class LayerApplier {
 public:
  LayerApplier(Tree& tree, LayerEntries& layer, const LayerMerger::OnRemoved& on_removed)
      : root_(tree.root), layer_(layer), number_(tree.layers), on_removed_(on_removed) {}

  void apply() {
    apply_whiteouts();
    for (std::size_t i = 0; i < layer_.entries.size(); ++i)
      add(layer_.entries[i], {.layer = number_, .entry = std::uint32_t(i)});
    resolve_late_links();
  }

 private:
  // A hard link whose target was not there yet; an inode of type kHardLink holds its place.
  struct LateLink {
    InodePtr parent;
    InodePtr place_keeper;
    std::string name;
    std::string target;
    InodePtr inode;  // what the link turned out to mean
  };
  struct Whiteout {
    InodePtr parent;
    std::string path;  // of the parent, as the layer says it
    std::string name;  // "" = all children
  };
  enum class Missing { kAbsent, kCreate };

  [[noreturn]] void corrupt(std::string_view path, std::string_view reason) const {
    fail<CorruptData>("layer {}: {:.300}: {}", layer_.layer_digest.to_string(), path, reason);
  }

  // All are resolved against the lower layers before one acts, so that their order does not matter.
  void apply_whiteouts() {
    std::vector<Whiteout> whiteouts;
    for (const auto& entry : layer_.entries) {
      const auto [parent, name] = split(entry.path);
      if (!name.starts_with(kWhiteoutPrefix) || lies_in_whiteout(parent)) continue;
      if (name == kWhiteoutPrefix) corrupt(entry.path, "a whiteout that names nothing");
      const bool opaque = name == kOpaqueName;
      if (!opaque && name.starts_with(kAufsPrefix)) continue;
      auto directory = find_lower_directory(parent);
      if (!directory) continue;
      const auto hidden = opaque ? std::string_view() : name.substr(kWhiteoutPrefix.size());
      if (hidden == "." || hidden == "..") corrupt(entry.path, "a whiteout that names no file");
      whiteouts.push_back({.parent = std::move(directory), .path = std::string(parent), .name = std::string(hidden)});
    }
    for (auto& whiteout : whiteouts) hide(whiteout);
  }

  void tell_removed(const InodePtr& inode, bool deleted) const {
    if (on_removed_) on_removed_(*inode, number_, deleted);
  }

  void hide(Whiteout& whiteout) {
    auto& children = whiteout.parent->children;
    const auto prefix = whiteout.path.empty() ? std::string() : whiteout.path + '/';
    if (whiteout.name.empty()) {
      for (auto& [name, child] : children) {
        tell_removed(child, true);
        removed_.try_emplace(prefix + name, std::move(child));
      }
      children.clear();
      return;
    }
    const auto found = children.find(whiteout.name);
    if (found == children.end()) return;
    tell_removed(found->second, true);
    removed_.try_emplace(prefix + whiteout.name, std::move(found->second));
    children.erase(found);
  }

  // The directory of a whiteout as lower layers have it. Absent also where a symlink on the way is replaced by this
  // layer: then the whiteout speaks of the new directory, which has nothing from below.
  InodePtr find_lower_directory(std::string_view path) {
    bool through_symlink = false;
    auto directory = walk(path, Missing::kAbsent, &through_symlink);
    if (!directory || !through_symlink) return directory;
    if (own_paths_.empty()) {
      for (const auto& entry : layer_.entries) own_paths_.insert(entry.path);
    }
    for (auto part = path; !part.empty(); part = split(part).parent) {
      if (!own_paths_.contains(part)) continue;
      const auto lower = find_target(part);
      if (lower && lower->type == FileType::kSymlink) return nullptr;
    }
    return directory;
  }

  // Follows a path to a directory; symlinks are resolved inside the root. With kCreate what is missing is made, and a
  // file in the way gives way; else the result may be absent.
  InodePtr walk(std::string_view path, Missing missing, bool* through_symlink = nullptr) {
    std::vector<InodePtr> at{root_};
    std::string rest(path);
    int symlinks = 0;
    for (std::size_t from = 0; from < rest.size();) {
      const auto end = std::min(rest.find('/', from), rest.size());
      const auto name = std::string_view(rest).substr(from, end - from);
      from = end + 1;
      if (name.empty() || name == ".") continue;
      if (name == "..") {
        if (at.size() > 1) at.pop_back();
        continue;
      }
      auto& children = at.back()->children;
      const auto found = children.find(name);
      if (found != children.end() && found->second->type == FileType::kSymlink) {
        if (++symlinks > kMaxSymlinksFollowed) {
          if (missing == Missing::kAbsent) return nullptr;
          corrupt(path, "too many symlinks on the way");
        }
        if (through_symlink != nullptr) *through_symlink = true;
        const auto& target = found->second->symlink_target;
        if (target.starts_with('/')) at.resize(1);
        rest = target + '/' + (from < rest.size() ? rest.substr(from) : std::string());
        from = 0;
        continue;
      }
      if (found == children.end() || found->second->type != FileType::kDirectory) {
        if (missing == Missing::kAbsent) return nullptr;
        put(*at.back(), name, std::make_shared<TreeInode>());
        at.push_back(at.back()->children.find(name)->second);
      } else {
        at.push_back(found->second);
      }
      if (at.size() > kMaxTreeDepth) corrupt(path, "directories nested too deeply");
    }
    return at.back();
  }

  // Entries of one directory follow each other, so the last parent is usually the next one.
  InodePtr parent_of(std::string_view path) {
    if (last_parent_ && last_parent_path_ == path) return last_parent_;
    auto parent = walk(path, Missing::kCreate);
    last_parent_ = parent;
    last_parent_path_ = path;
    return parent;
  }

  void put(TreeInode& parent, std::string_view name, InodePtr inode) {
    const auto found = parent.children.lower_bound(name);
    if (found == parent.children.end() || found->first != name) {
      parent.children.emplace_hint(found, name, std::move(inode));
      return;
    }
    // What goes may be on the way to the directory that is remembered.
    if (found->second->type == FileType::kDirectory || found->second->type == FileType::kSymlink)
      last_parent_ = nullptr;
    tell_removed(found->second, false);
    found->second = std::move(inode);
  }

  void add(LayerEntry& entry, EntryPlace place) {
    if (entry.path.empty()) {
      if (entry.type != FileType::kDirectory) corrupt("/", "the root is not a directory");
      update_directory(*root_, entry, place);
      return;
    }
    const auto [parent_path, name] = split(entry.path);
    if (entry.path.starts_with(kAufsLinks)) {
      if (entry.type == FileType::kRegular) removed_[entry.path] = make_inode(entry, place);
      return;
    }
    if (name.starts_with(kWhiteoutPrefix) || lies_in_whiteout(parent_path)) return;
    if (entry.type == FileType::kHardLink) {
      add_hard_link(entry, parent_path, name);
      return;
    }
    const auto parent = parent_of(parent_path);
    if (entry.type == FileType::kDirectory) {
      const auto found = parent->children.find(name);
      if (found != parent->children.end() && found->second->type == FileType::kDirectory) {
        update_directory(*found->second, entry, place);
        return;
      }
    }
    put(*parent, name, make_inode(entry, place));
  }

  static void update_directory(TreeInode& directory, LayerEntry& entry, EntryPlace place) {
    take_attributes(directory, entry, place);
  }

  void add_hard_link(LayerEntry& entry, std::string_view parent_path, std::string_view name) {
    // The target is looked up first: it may be the very file that the link replaces, or lie under it.
    auto target = find_target(entry.link_target);
    const auto parent = parent_of(parent_path);
    const auto found = parent->children.find(name);
    if (target && target->type == FileType::kDirectory) corrupt(entry.path, "a hard link to a directory");
    if (target && found != parent->children.end() && found->second == target) return;
    if (target && target->type != FileType::kHardLink) {
      put(*parent, name, std::move(target));
      return;
    }
    auto place_keeper = std::make_shared<TreeInode>();
    place_keeper->type = FileType::kHardLink;
    put(*parent, name, place_keeper);
    late_index_.emplace(place_keeper.get(), late_.size());
    late_.push_back({.parent = parent,
                     .place_keeper = place_keeper,
                     .name = std::string(name),
                     .target = std::move(entry.link_target),
                     .inode = nullptr});
  }

  // A name in the tree as it is now; the last part is not followed.
  InodePtr find_target(std::string_view path) {
    const auto [parent_path, name] = split(path);
    if (const auto parent = walk(parent_path, Missing::kAbsent)) {
      const auto found = parent->children.find(name);
      if (found != parent->children.end()) return found->second;
    }
    return nullptr;
  }

  // A file that whiteouts of this layer took away, or one that aufs kept aside.
  InodePtr find_removed(std::string_view path) {
    for (auto top = path;; top = split(top).parent) {
      if (top.empty()) return nullptr;
      const auto found = removed_.find(top);
      if (found == removed_.end()) continue;
      auto inode = found->second;
      auto rest = path.substr(std::min(top.size() + 1, path.size()));
      while (!rest.empty()) {
        const auto end = std::min(rest.find('/'), rest.size());
        const auto child = inode->children.find(rest.substr(0, end));
        if (child == inode->children.end()) return nullptr;
        inode = child->second;
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      return inode;
    }
  }

  void resolve_late_links() {
    for (std::size_t i = 0; i < late_.size(); ++i) resolve_chain(i);
    for (auto& link : late_) {
      const auto found = link.parent->children.find(link.name);
      // A later entry of the same name may have taken its place.
      if (found != link.parent->children.end() && found->second == link.place_keeper) found->second = link.inode;
    }
  }

  // A chain of links ends at a file; each link on the way gets it, so that all together take linear time.
  void resolve_chain(std::size_t first) {
    std::vector<std::size_t> chain{first};
    InodePtr inode = late_[first].inode;
    while (!inode) {
      const auto& link = late_[chain.back()];
      auto target = find_target(link.target);
      if (!target) target = find_removed(link.target);
      if (!target) corrupt(link.name, "a hard link to " + link.target + ", which is not in the image");
      if (target->type == FileType::kDirectory) corrupt(link.name, "a hard link to a directory");
      if (target->type != FileType::kHardLink) {
        inode = std::move(target);
        break;
      }
      chain.push_back(late_index_.at(target.get()));
      inode = late_[chain.back()].inode;
      if (chain.size() > late_.size()) corrupt(link.name, "hard links that only lead to each other");
    }
    for (const auto at : chain) late_[at].inode = inode;
  }

  const InodePtr& root_;
  LayerEntries& layer_;
  std::uint32_t number_;
  const LayerMerger::OnRemoved& on_removed_;
  InodePtr last_parent_;
  std::string last_parent_path_;
  std::unordered_set<std::string_view> own_paths_;        // filled only when a whiteout goes through a symlink
  std::map<std::string, InodePtr, std::less<>> removed_;  // by the name this layer uses for it
  std::vector<LateLink> late_;
  std::unordered_map<const TreeInode*, std::size_t> late_index_;
};

}  // namespace

void LayerMerger::add(LayerEntries layer) {
  LayerApplier(tree_, layer, on_removed_).apply();
  ++tree_.layers;
}

Tree LayerMerger::finish() { return std::exchange(tree_, Tree()); }

}  // namespace varve::index
