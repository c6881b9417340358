#include "analyzer/packages/layer_stack.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/errors.h"

namespace varve::packages {

using index::FileType;
using index::TreeInode;

LayerStack::LayerStack()
    : merger_([this](const TreeInode& removed, std::uint32_t by_layer, bool deleted) {
        note_removal(removed, by_layer, deleted);
      }) {}

void LayerStack::add(index::LayerEntries layer, const CompressedShares& shares) {
  const auto compressed = shares_of_entries(layer.entries, shares);
  auto& facts = facts_.emplace_back();
  facts.reserve(layer.entries.size());
  for (std::size_t i = 0; i < layer.entries.size(); ++i) {
    const auto& entry = layer.entries[i];
    facts.push_back({.path = entry.path,
                     .type = entry.type,
                     .size = entry.size,
                     .compressed_bytes = compressed[i],
                     .content = entry.content_digest});
  }
  seen_.emplace_back(facts.size(), false);
  merger_.add(std::move(layer));
}

void LayerStack::note_removal(const TreeInode& removed, std::uint32_t by_layer, bool deleted) {
  std::vector<const TreeInode*> waiting{&removed};
  while (!waiting.empty()) {
    const auto& inode = *waiting.back();
    waiting.pop_back();
    if (inode.type == FileType::kDirectory) {
      for (const auto& [name, child] : inode.children) waiting.push_back(child.get());
    } else if (inode.entry != index::kNoEntry) {
      removals_[{inode.layer, inode.entry}] = {.by_layer = by_layer, .deleted = deleted};
    }
  }
}

void LayerStack::finish() {
  tree_ = merger_.finish();
  list_files();
  list_hidden();
}

const LayerStack::Fact* LayerStack::fact_of(std::uint32_t layer, std::uint32_t entry) const {
  return entry != index::kNoEntry && layer < facts_.size() && entry < facts_[layer].size() ? &facts_[layer][entry]
                                                                                           : nullptr;
}

void LayerStack::list_files() {
  std::vector<std::pair<const TreeInode*, std::string>> waiting{{tree_.root.get(), ""}};
  std::vector<std::pair<const TreeInode*, std::string>> shared;
  while (!waiting.empty()) {
    const auto [folder, prefix] = std::move(waiting.back());
    waiting.pop_back();
    for (const auto& [name, inode] : folder->children) {
      auto path = prefix + name;
      if (path.size() > kMaxStackPathBytes)
        fail<Unsupported>("image: {:.100}…: a name of more than {} bytes", path, kMaxStackPathBytes);
      if (files_.size() >= kMaxStackFiles) fail<Unsupported>("image: more than {} files", kMaxStackFiles);
      if (inode->type == FileType::kDirectory) waiting.emplace_back(inode.get(), path + '/');
      SourceFile file;
      file.type = inode->type;
      file.size = inode->type == FileType::kRegular ? inode->size : 0;
      file.layer = inode->layer;
      file.mode = inode->mode;
      file.symlink_target = inode->symlink_target;
      if (const auto* fact = fact_of(inode->layer, inode->entry)) {
        file.compressed_bytes = fact->compressed_bytes;
        seen_[inode->layer][inode->entry] = true;
      }
      if (inode.use_count() > 1) shared.emplace_back(inode.get(), path);
      files_.emplace(std::move(path), std::move(file));
    }
  }
  std::ranges::sort(shared);
  for (std::size_t i = 1; i < shared.size(); ++i) {
    if (shared[i].first == shared[i - 1].first) files_.find(shared[i].second)->second.first_name = false;
  }
}

void LayerStack::list_hidden() {
  std::map<std::uint32_t, std::map<std::string_view, const Fact*>> by_path;
  for (std::uint32_t layer = 0; layer < facts_.size(); ++layer) {
    for (std::uint32_t entry = 0; entry < facts_[layer].size(); ++entry) {
      const auto& fact = facts_[layer][entry];
      if (seen_[layer][entry] || (fact.type != FileType::kRegular && fact.type != FileType::kSymlink)) continue;
      const auto removal = removals_.find({layer, entry});
      if (removal == removals_.end()) continue;  // a whiteout, or what aufs left behind: never part of a tree
      HiddenFile hidden;
      hidden.path = fact.path;
      hidden.file.type = fact.type;
      hidden.file.size = fact.size;
      hidden.file.layer = layer;
      hidden.file.compressed_bytes = fact.compressed_bytes;
      hidden.by_layer = removal->second.by_layer;
      hidden.deleted = removal->second.deleted;
      hidden.same_content = !hidden.deleted && has_same_content(fact, hidden.by_layer, by_path);
      hidden_.push_back(std::move(hidden));
    }
  }
}

bool LayerStack::has_same_content(const Fact& fact, std::uint32_t layer,
                                  std::map<std::uint32_t, std::map<std::string_view, const Fact*>>& by_path) const {
  if (fact.type != FileType::kRegular || layer >= facts_.size()) return false;
  auto& names = by_path[layer];
  if (names.empty()) {
    for (const auto& other : facts_[layer]) names[other.path] = &other;  // of several with one name the last counts
  }
  const auto found = names.find(fact.path);
  if (found == names.end() || found->second->type != FileType::kRegular || found->second->size != fact.size)
    return false;
  return fact.size == 0 || (fact.content != Digest() && found->second->content == fact.content);
}

const TreeInode* LayerStack::find_regular(std::string_view path) const {
  const auto* at = tree_.root.get();
  while (at != nullptr) {
    const auto end = std::min(path.find('/'), path.size());
    const auto found = at->children.find(path.substr(0, end));
    at = found == at->children.end() ? nullptr : found->second.get();
    if (end == path.size()) break;
    path.remove_prefix(end + 1);
  }
  return at != nullptr && at->type == FileType::kRegular ? at : nullptr;
}

}  // namespace varve::packages
