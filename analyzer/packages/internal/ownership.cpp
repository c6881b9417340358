#include "analyzer/packages/internal/ownership.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/index/merge/bytecode.h"

namespace varve::packages::internal {

Ownership::Ownership(const FileTable& table, const std::vector<Installed>& installed)
    : sets_{{}}, numbers_{{{}, 0}}, set_of_(table.size(), 0) {
  const auto is_dpkg = [&](std::size_t number) { return installed[number].distribution.source == Source::kDpkg; };
  const auto add_claims = [&](bool dpkg) {
    for (std::size_t i = 0; i < installed.size(); ++i) {
      if (is_dpkg(i) != dpkg) continue;
      for (const auto file : installed[i].claims) {
        const bool taken = !dpkg && set_of_[file] != 0 && is_dpkg(of(file).front());
        if (!taken) add(file, std::uint32_t(i));
      }
    }
  };
  add_claims(true);
  add_claims(false);
  std::vector<FileId> weak_files;
  std::vector<std::uint32_t> before;
  for (std::size_t i = 0; i < installed.size(); ++i) {
    for (const auto file : installed[i].weak_claims) weak_files.push_back(file);
  }
  std::ranges::sort(weak_files);
  weak_files.erase(std::unique(weak_files.begin(), weak_files.end()), weak_files.end());
  std::erase_if(weak_files, [&](FileId file) { return set_of_[file] != 0; });
  for (std::size_t i = 0; i < installed.size(); ++i) {
    for (const auto file : installed[i].weak_claims) {
      if (std::ranges::binary_search(weak_files, file)) add(file, std::uint32_t(i));
    }
  }
  for (FileId file = 0; file < table.size(); ++file) {
    if (set_of_[file] != 0 || !table.is_content(file)) continue;
    const auto source = index::source_of_bytecode(table.path(file));
    if (source.empty()) continue;
    if (const auto id = table.find(source)) set_of_[file] = set_of_[*id];
  }
}

std::uint32_t Ownership::number_of(std::vector<std::uint32_t> set) {
  const auto [found, is_new] = numbers_.try_emplace(set, std::uint32_t(sets_.size()));
  if (is_new) sets_.push_back(std::move(set));
  return found->second;
}

std::uint32_t Ownership::unite(std::uint32_t one, std::uint32_t other) {
  if (one == other || other == 0) return one;
  if (one == 0) return other;
  if (sets_[one].size() + sets_[other].size() > kMaxOwners)
    return sets_[one].size() < sets_[other].size() ? other : one;
  const auto key = std::minmax(one, other);
  if (const auto found = unions_.find(key); found != unions_.end()) return found->second;
  std::vector<std::uint32_t> both;
  std::ranges::set_union(sets_[one], sets_[other], std::back_inserter(both));
  const auto number = number_of(std::move(both));
  unions_.emplace(key, number);
  return number;
}

void Ownership::count_into(const FileTable& table, bool has_layers, std::vector<Distribution>& distributions) const {
  std::vector<std::map<std::uint32_t, std::uint64_t>> layers(distributions.size());  // -> share of its blob
  for (FileId id = 0; id < table.size(); ++id) {
    const auto& owners = of(id);
    if (owners.empty()) continue;
    const auto& file = table.file(id);
    for (std::size_t i = 0; i < owners.size(); ++i) {
      auto& distribution = distributions[owners[i]];
      ++distribution.files;
      if (owners.size() > 1) ++distribution.shared_files;
      if (has_layers) layers[owners[i]].try_emplace(file.layer);
      if (!file.is_first_name()) continue;
      distribution.bytes += file.size;
      // The remainder goes to the first ones, so that all together have what the file has.
      const auto share = file.compressed_bytes / owners.size() + (i < file.compressed_bytes % owners.size() ? 1 : 0);
      distribution.compressed_bytes += share;
      if (has_layers) layers[owners[i]][file.layer] += share;
    }
  }
  for (std::size_t i = 0; i < distributions.size(); ++i) {
    for (const auto& [layer, share] : layers[i]) {
      distributions[i].layers.push_back(layer);
      distributions[i].layer_bytes.push_back(share);
    }
  }
}

}  // namespace varve::packages::internal
